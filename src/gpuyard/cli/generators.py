"""``gpuyard workload synth`` and ``fit``: workloads from generators, from presets, and like a trace."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from gpuyard.cli.inputs import (
    ClusterText,
    Json,
    OutFile,
    WorkloadText,
    check_output,
    open_cluster,
    open_console,
    open_workload,
    parse_settings,
    print_json,
    write_text,
)
from gpuyard.cli.parameters import SynthOptions, given_options, option_name, parse_mix, validated
from gpuyard.errors import InputError

if TYPE_CHECKING:
    from gpuyard.workload.formats import Trace
    from gpuyard.workload.generators import FittedTrace

_FITTED_START = re.compile(rb'\s*\{\s*"name"\s*:')
WITH_PRESET = ("jobs", "seed", "name")
WITH_LIKE = ("jobs", "seed")


def synth(
    *,
    out: OutFile,
    preset: Annotated[
        str | None, Parameter(help="A built-in workload by name (gpuyard workload list).")
    ] = None,
    settings: Annotated[
        list[str] | None,
        Parameter(name="--set", negative=(), help="KEY=VALUE: a setting of the preset; repeat it for more."),
    ] = None,
    like: Annotated[
        str | None, Parameter(help="A trace, or what fit made of one, to draw a workload like it.")
    ] = None,
    rate: Annotated[
        float | None, Parameter(help="With --like: jobs come so many times as fast. (default: 1.0)")
    ] = None,
    cluster: ClusterText = None,
    cluster_out: Annotated[
        Path | None, Parameter(help="With --preset: also write the cluster it is meant for, as TOML.")
    ] = None,
    json: Json = False,
    options: SynthOptions = SynthOptions(),  # noqa: B008  (frozen)
) -> None:
    """Make a workload: from the options below, from a preset, or like a trace.

    Example: gpuyard workload synth --preset diurnal --set load=1.1 --out jobs.parquet
    """
    from gpuyard.workload.job_table import check_suffix, write_workload

    check_suffix(out)
    check_output("--cluster-out", cluster_out, (".toml",))
    _check_together(preset, settings, like, rate, cluster, cluster_out, options)
    if preset is not None:
        trace = _from_preset(preset, settings or [], options, cluster_out)
    else:
        trace = _from_options(cluster, options) if like is None else _like(like, rate, options)
    write_workload(trace.workload, out)
    if cluster_out is not None and trace.cluster is not None:
        write_text(cluster_out, trace.cluster.to_toml())
    _say_made(out, trace, cluster_out, json)


def _check_together(
    preset: str | None,
    settings: list[str] | None,
    like: str | None,
    rate: float | None,
    cluster: str | None,
    cluster_out: Path | None,
    options: SynthOptions,
) -> None:
    """Refuse options that have no meaning together."""
    if preset is not None and like is not None:
        raise InputError("--preset and --like contradict each other; give one of them")
    needed = {"--set": (settings, preset, "--preset"), "--cluster-out": (cluster_out, preset, "--preset")}
    for option, (given, other, name) in {**needed, "--rate": (rate, like, "--like")}.items():
        if given is not None and other is None:
            raise InputError(f"{option} needs {name}; without it, it means nothing")
    if preset is None and like is None:
        return
    source, allowed = ("--preset", WITH_PRESET) if like is None else ("--like", WITH_LIKE)
    others = [name for name in given_options(options) if name not in allowed]
    if cluster is not None:
        raise InputError(f"--cluster does not go with {source}: it says itself what the load refers to")
    if others:
        remedy = f"; write --set {others[0]}=VALUE" if like is None else ", which draws as the trace has it"
        raise InputError(f"{option_name(others[0])} does not go with {source}{remedy}")


def _from_options(cluster: str | None, options: SynthOptions) -> Trace:
    machines = open_cluster(cluster)
    if machines is not None and machines.total_gpus == 0:
        raise InputError(f"--cluster {cluster}: has no GPUs for the load to refer to")
    return options.config(machines.total_gpus if machines else None).generate()


def _from_preset(name: str, texts: list[str], options: SynthOptions, cluster_out: Path | None) -> Trace:
    from gpuyard.workload.generators import preset_workload

    settings = parse_settings("--set", texts)
    given = given_options(options)
    if twice := sorted(set(settings) & set(given)):
        raise InputError(f"--set {twice[0]} and {option_name(twice[0])} say the same thing; give one of them")
    if sized := sorted(set(settings) & {"cluster_gpus", "processors"} if cluster_out else ()):
        raise InputError(
            f"--cluster-out does not go with --set {sized[0]}: the preset's own cluster is of another size"
        )
    for mix in ("gang_mix", "priority_mix"):
        if isinstance(settings.get(mix), str):
            settings[mix] = parse_mix(f"--set {mix}", settings[mix])
    return preset_workload(name, **settings, **given)


def _like(source: str, rate: float | None, options: SynthOptions) -> Trace:
    from gpuyard.workload.generators import LikeConfig

    fitted = _fitted(source)
    settings: dict[str, Any] = {"name": f"like-{fitted.name}", "jobs": fitted.jobs, "fitted": fitted}
    settings |= given_options(options) | ({} if rate is None else {"rate": rate})
    return validated(LikeConfig, settings).generate()


def _fitted(source: str) -> FittedTrace:
    """What was fitted before, or now."""
    from gpuyard.workload.chunks import read_head
    from gpuyard.workload.generators import fit_trace, read_fitted

    path = Path(source)
    if path.is_file() and path.suffix == ".json" and _FITTED_START.match(read_head(path)):
        return read_fitted(path)
    return fit_trace(open_workload(source))


def _say_made(out: Path, trace: Trace, cluster_out: Path | None, json: bool) -> None:
    jobs = trace.workload
    step = jobs.metadata.history[-1]
    settings = {name: value for name, value in step.settings.items() if name != "fitted"}
    if json:
        document = {"file": str(out), "jobs": len(jobs), "generator": step.name, "settings": settings}
        print_json({**document, "cluster_file": None if cluster_out is None else str(cluster_out)})
        return
    load = ""
    if "load" in settings and "cluster_gpus" in settings:
        load = f" at load {settings['load']:g} for {settings['cluster_gpus']:,} GPUs"
    console = open_console()
    console.print(f"{out}: {len(jobs):,} jobs{load}, seed {settings['seed']}")
    if cluster_out is not None and trace.cluster is not None:
        console.print(f"{cluster_out}: {trace.cluster.name}, the cluster it is meant for")
    elif trace.cluster is not None:
        console.print("--cluster-out FILE also writes the cluster it is meant for", style="dim")


def fit(
    workload: WorkloadText,
    /,
    *,
    out: Annotated[Path, Parameter(help="The file to write: .json.")],
    json: Json = False,
) -> None:
    """Keep of a trace what it takes to draw workloads like it: counts and quantiles, no jobs.

    Example: gpuyard workload fit jobs.parquet --out fitted.json
    """
    from gpuyard.workload.generators import fit_trace

    check_output("--out", out, (".json",))
    fitted = fit_trace(open_workload(workload))
    write_text(out, fitted.model_dump_json(indent=1) + "\n")
    counts = {
        "jobs": fitted.jobs,
        "gang_sizes": len(fitted.sizes),
        "users": len({submitter.user for submitter in fitted.submitters}),
    }
    if json:
        print_json({"file": str(out), "bytes": out.stat().st_size, **counts})
        return
    said = ", ".join(f"{count:,} {name.replace('_', ' ')}" for name, count in counts.items())
    open_console().print(f"{out}: {said} in {out.stat().st_size / 1000:,.0f} KB")
    open_console().print(f"gpuyard workload synth --like {out} --out like.parquet", style="dim")
