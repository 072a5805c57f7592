"""``gpuyard calibrate``: which policy, settings and nodes reproduce what a log recorded."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from gpuyard.calibrate.config import CalibrationConfig
from gpuyard.cli.inputs import (
    need_cluster,
    open_console,
    open_trace,
    print_json,
    print_note,
    write_text,
)
from gpuyard.cli.parameters import SIMULATION, ClusterText, Json, Simulation, settings
from gpuyard.errors import InputError
from gpuyard.terminal.console import StageProgress

if TYPE_CHECKING:
    from gpuyard.calibrate.result import Calibration

Limits = Annotated[CalibrationConfig, settings(CalibrationConfig, "Search")]
LIMITS = CalibrationConfig()


def calibrate(
    log: Annotated[str, Parameter(help="A file of jobs with recorded starts, in any known format.")],
    /,
    *,
    cluster: ClusterText = None,
    policy: Annotated[
        list[str] | None,
        Parameter(
            negative=(),
            help="Measure this policy or policy file, such as that of your slurm.conf; search nothing.",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        Parameter(help="Write the policy, the figures and a page into this directory."),
    ] = None,
    json: Json = False,
    limits: Limits = LIMITS,
    simulation: Simulation = SIMULATION,
) -> None:
    """Find the policy that reproduces a log's recorded waits, and say how closely.

    It is searched on the first half of the log and reported on the second. --current takes what --out
    writes: calibrated.toml.

    Example: gpuyard calibrate jobs.parquet --cluster 64x8 --out calibrated
    """
    from gpuyard.calibrate.engine import calibrate as find
    from gpuyard.native.information import why_chosen

    if out is not None:
        _check_out(out)
    need_cluster(cluster, log)
    jobs, machines, _ = open_trace(log, cluster)
    if machines is None:
        raise InputError("--cluster is missing: which cluster did the log run on?")
    own, name = policy or (), Path(log).name
    with StageProgress() as progress:
        tell = progress.update
        found = find(jobs, machines, simulation, limits, policies=own, source=name, progress=tell)
    if why := why_chosen(simulation, jobs):
        print_note(why)
    for note in found.notes:
        print_note(note)
    written = [] if out is None else _write(found, out)
    if json:
        print_json(found.to_json())
        return
    from gpuyard.terminal.calibration import show_calibration

    show_calibration(open_console(), found, out, written)


def _check_out(directory: Path) -> None:
    from gpuyard.calibrate.result import DOCUMENT, check_free

    try:
        check_free(directory)
    except InputError as error:
        raise InputError(f"--out {error}") from None
    if (directory / DOCUMENT).is_file():
        print_note(f"--out {directory}: the calibration that is there is replaced")


def _write(found: Calibration, directory: Path) -> list[str]:
    from gpuyard.calibrate.result import PAGE
    from gpuyard.report.pages.calibration import calibration_page

    written = found.write(directory)
    write_text(directory / PAGE, calibration_page(found))
    return [*written, PAGE]
