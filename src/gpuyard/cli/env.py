"""``gpuyard env``: which environments there are, what they are like, and episodes of them as files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter

from gpuyard.cli.inputs import open_console, parse_settings, print_json
from gpuyard.cli.parameters import ClusterText, Json
from gpuyard.errors import InputError
from gpuyard.terminal.env import column_table, environment_table, fact_table, preset_table, result_table

if TYPE_CHECKING:
    from gpuyard.env.single import SchedulingEnv

EnvName = Annotated[
    str, Parameter(help="An id such as gpuyard/SelectJob-v0, or a preset (gpuyard env list).")
]
Preset = Annotated[str | None, Parameter(help="With an id: settings of this preset.")]
Settings = Annotated[
    list[str] | None,
    Parameter(
        name="--set",
        negative=(),
        help='KEY=VALUE: a setting of the environment, such as window=128 or rewards={"wait":1}; '
        "repeat it for more.",
    ),
]
Jobs = Annotated[
    str | None, Parameter(help="Episodes are windows of this workload: a file, or a built-in one's name.")
]

env_app = App(name="env")


@env_app.command(name="list")
def list_environments(*, json: Json = False) -> None:
    """List environments, what their actions are and what they are for, and presets of settings.

    Example: gpuyard env list
    """
    from gpuyard.env.describe import list_document

    document = list_document()
    if json:
        print_json(document)
        return
    console = open_console()
    console.print(environment_table(document["environments"]), "", sep="\n")
    console.print(preset_table(document["presets"]), "", sep="\n")
    console.print("gpuyard env describe NAME shows what one of them sees and does", style="dim")


@env_app.command
def describe(
    name: EnvName,
    /,
    *,
    preset: Preset = None,
    settings: Settings = None,
    workload: Jobs = None,
    cluster: ClusterText = None,
    json: Json = False,
) -> None:
    """Say what an environment sees, does, rewards and draws its episodes from.

    Example: gpuyard env describe gpuyard/SelectJob-v0 --set window=128 --cluster 64x8
    """
    from gpuyard.env.describe import describe_document, shown_settings

    env, chosen = _open(name, preset, settings, workload, cluster)
    document = describe_document(env.model, chosen)
    if json:
        print_json(document)
        return
    console = open_console()
    console.print(fact_table(document, shown_settings(document["settings"])), "", sep="\n")
    for part, what in document["observation"]["parts"].items():
        if what["columns"]:
            console.print(column_table(part, what), "", sep="\n")
    for setting, part in (("job_features", "jobs"), ("global_features", "globals")):
        asked = [column["name"] for column in document["observation"]["on_request"][part]]
        if asked:
            console.print(f"Optional columns of {part}, if {setting} names them: {', '.join(asked)}")
    version = document["observation"]["version"]
    console.print(
        f"docs/contract/observation.md has the formulas of observation version {version}", style="dim"
    )


@env_app.command
def export(
    name: EnvName,
    /,
    *,
    seeds: Annotated[str, Parameter(help="Episodes to write, by seed, such as 42,43,44.")],
    out: Annotated[Path, Parameter(help="The directory to write to: a folder for each seed.")],
    preset: Preset = None,
    settings: Settings = None,
    workload: Jobs = None,
    cluster: ClusterText = None,
    policy: Annotated[
        list[str] | None,
        Parameter(
            negative=(), help="Also run this policy, and others by repeating it, besides the usual ones."
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Write fixed episodes as files that other programs can replay.

    Jobs (CSV and parquet), the cluster (TOML), and the results of reference policies, by which a program can
    check itself (JSON).

    Example: gpuyard env export bursty-8gpu --seeds 42,43,44 --out episodes
    """
    from gpuyard.env.export import export_episodes, reference_policies

    numbers = _parse_seeds(seeds)
    # Files hold an episode's own jobs alone.
    env, chosen = _open(name, preset, settings, workload, cluster, warmup_jobs=0, cooldown_jobs=0)
    policies = tuple(dict.fromkeys((*reference_policies(env.model.kind), *(policy or ()))))
    documents = export_episodes(out, env, numbers, chosen, policies)
    if json:
        print_json({"episodes": documents})
        return
    console = open_console()
    console.print(result_table(documents), "", sep="\n")
    console.print(f"Written to {out}, for each seed: jobs.csv, jobs.parquet, cluster.toml, episode.json")


def _open(
    name: str,
    preset: str | None,
    settings: list[str] | None,
    workload: str | None,
    cluster: str | None,
    **usual: Any,
) -> tuple[SchedulingEnv, str | None]:
    from gpuyard.env.describe import named_environment

    given: dict[str, Any] = parse_settings("--set", settings or [])
    for option in ("workload", "cluster", "preset"):
        if option in given:
            raise InputError(f"--set {option}: write --{option} {given[option]}")
    return named_environment(name, {**usual, **given}, preset=preset, workload=workload, cluster=cluster)


def _parse_seeds(text: str) -> list[int]:
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdigit() and int(part) < 2**63 for part in parts):
        raise InputError(f"--seeds {text!r}: expected whole numbers from 0 on, such as 42,43,44")
    return list(dict.fromkeys(map(int, parts)))
