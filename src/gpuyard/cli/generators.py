"""``gpuyard workload synth`` and ``fit``: workloads from generators, from presets, and like a trace."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from cyclopts import Parameter
from pydantic import BaseModel, ValidationError

from gpuyard.cli.inputs import (
    check_jobs_output,
    check_output,
    flag,
    open_cluster,
    open_console,
    open_workload,
    parse_settings,
    print_json,
    write_text,
)
from gpuyard.cli.parameters import ClusterText, Json, OutFile, WorkloadText, settings
from gpuyard.config import refusal
from gpuyard.errors import InputError, setting
from gpuyard.workload.synthetic_config import SynthConfig

if TYPE_CHECKING:
    from gpuyard.workload.formats import Trace
    from gpuyard.workload.generators import FittedTrace

Model = TypeVar("Model", bound=BaseModel)

_FITTED_START = re.compile(rb'\s*\{\s*"name"\s*:')
Jobs = Annotated[SynthConfig, settings(SynthConfig, "Jobs", without=("cluster_gpus",))]
USUAL = SynthConfig()
WITH_PRESET = ("jobs", "seed", "name")
WITH_LIKE = ("jobs", "seed")


def synth(
    *,
    out: OutFile,
    preset: Annotated[
        str | None, Parameter(help="A built-in workload by name (gpuyard workload list).")
    ] = None,
    sets: Annotated[
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
    jobs: Jobs = USUAL,
) -> None:
    """Make a workload: from the options below, from a preset, or like a trace.

    Example: gpuyard workload synth --preset diurnal --set load=1.1 --out jobs.parquet
    """
    from gpuyard.workload.job_table import write_workload

    check_jobs_output(out)
    check_output("--cluster-out", cluster_out, (".toml",))
    _check_together(preset, sets, like, rate, cluster, cluster_out, jobs)
    if preset is not None:
        trace = _from_preset(preset, sets or [], jobs, cluster_out)
    else:
        trace = _from_options(cluster, jobs) if like is None else _like(like, rate, jobs)
    write_workload(trace.workload, out)
    if cluster_out is not None and trace.cluster is not None:
        write_text(cluster_out, trace.cluster.to_toml())
    _say_made(out, trace, cluster_out, json)


def _check_together(
    preset: str | None,
    sets: list[str] | None,
    like: str | None,
    rate: float | None,
    cluster: str | None,
    cluster_out: Path | None,
    jobs: SynthConfig,
) -> None:
    """Refuse options that have no meaning together."""
    if preset is not None and like is not None:
        raise InputError("--preset and --like contradict each other; give one of them")
    needed = {"--set": (sets, preset, "--preset"), "--cluster-out": (cluster_out, preset, "--preset")}
    for option, (given, other, name) in {**needed, "--rate": (rate, like, "--like")}.items():
        if given is not None and other is None:
            raise InputError(f"{option} needs {name}; without it, it means nothing")
    if preset is None and like is None:
        return
    source, allowed = ("--preset", WITH_PRESET) if like is None else ("--like", WITH_LIKE)
    others = [name for name in _given(jobs) if name not in allowed]
    if cluster is not None:
        raise InputError(f"--cluster does not go with {source}: it says itself what the load refers to")
    if others:
        remedy = f"; write --set {others[0]}=VALUE" if like is None else ", which draws as the trace has it"
        raise InputError(f"{setting(others[0])} does not go with {source}{remedy}")


def _from_options(cluster: str | None, jobs: SynthConfig) -> Trace:
    machines = open_cluster(cluster)
    if machines is not None and machines.total_gpus == 0:
        raise InputError(f"--cluster {cluster}: has no GPUs for the load to refer to")
    if machines is not None:
        jobs = _read(SynthConfig, {**_given(jobs), "cluster_gpus": machines.total_gpus})
    return jobs.generate()


def _given(jobs: SynthConfig) -> dict[str, Any]:
    """What was typed, as the model has it."""
    return {name: getattr(jobs, name) for name in SynthConfig.model_fields if name in jobs.model_fields_set}


def _read(model: type[Model], given: dict[str, Any]) -> Model:
    try:
        return model(**given)
    except ValidationError as error:
        raise refusal(error) from None


def _from_preset(name: str, texts: list[str], jobs: SynthConfig, cluster_out: Path | None) -> Trace:
    from gpuyard.workload.generators import preset_workload

    stated = parse_settings("--set", texts)
    given = _given(jobs)
    if twice := sorted(set(stated) & set(given)):
        raise InputError(f"--set {twice[0]} and {flag(twice[0])} say the same thing; give one of them")
    if sized := sorted(set(stated) & {"cluster_gpus", "processors"} if cluster_out else ()):
        raise InputError(
            f"--cluster-out does not go with --set {sized[0]}: the preset's own cluster is of another size"
        )
    return preset_workload(name, **stated, **given)


def _like(source: str, rate: float | None, jobs: SynthConfig) -> Trace:
    from gpuyard.workload.generators import LikeConfig

    fitted = _fitted(source)
    drawn: dict[str, Any] = {"name": f"like-{fitted.name}", "jobs": fitted.jobs, "fitted": fitted}
    drawn |= _given(jobs) | ({} if rate is None else {"rate": rate})
    return _read(LikeConfig, drawn).generate()


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
    stated = {name: value for name, value in step.settings.items() if name != "fitted"}
    if json:
        document = {"file": str(out), "jobs": len(jobs), "generator": step.name, "settings": stated}
        print_json({**document, "cluster_file": None if cluster_out is None else str(cluster_out)})
        return
    load = ""
    if "load" in stated and "cluster_gpus" in stated:
        load = f" at load {stated['load']:g} for {stated['cluster_gpus']:,} GPUs"
    console = open_console()
    console.print(f"{out}: {len(jobs):,} jobs{load}, seed {stated['seed']}")
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
