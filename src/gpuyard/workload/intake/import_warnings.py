"""What an import must warn of, whatever its format: missing rows, missing GPUs, times that clash."""

from gpuyard.units import plural
from gpuyard.workload.identity import name_of
from gpuyard.workload.importing import ImportLog, ImportReport
from gpuyard.workload.recorded import early_starts
from gpuyard.workload.schema import Workload

MOST_REJECTED = 0.2
"""Share of the rows that state a job which may become none without a warning."""

_LABELS = {
    "partition": "limits and nodes of partitions or queues ({} of them): jobs may run on every node",
    "qos": "limits and priorities of {} QOS",
}


def look_over(workload: Workload, report: ImportReport, log: ImportLog) -> None:
    """Write into the log what its numbers and the jobs call for.

    Args:
        workload: What was imported.
        report: What became of the rows.
        log: Of a reader that is done.
    """
    _rejected(report, log)
    _gpus(workload, log)
    _starts(workload, log)
    _labels(workload, log)


def _rejected(report: ImportReport, log: ImportLog) -> None:
    rejected, rows = report.left_out()
    if rejected <= MOST_REJECTED * rows:
        return
    main = next(finding for finding in report.rejected if not finding.parts)
    log.warn(
        "rejected-rows",
        f"{rejected:,} of {rows:,} rows ({100 * rejected / rows:.0f} %) became no job; "
        f"the most common reason ({plural(main.rows, 'row')}): {main.reason}",
        f"look at {main.first[0]}; if such rows are jobs that ran, export them in another form: "
        "without them a simulation sees a cluster that is emptier than yours",
    )


def _gpus(workload: Workload, log: ImportLog) -> None:
    if workload.frame["gpus"].max() or log.warns_of("no-gpu-field"):
        return
    log.warn(
        "no-gpus",
        f"{_all(len(workload))} 0 GPUs",
        "if your cluster has GPUs, the log lacks them: export the fields that count GPUs and import again; "
        "if it has none, use nodes with gpus = 0 and their cpus (docs/formats/cluster.md)",
    )


def _all(jobs: int) -> str:
    return "the job has" if jobs == 1 else f"all {jobs:,} jobs have"


def _starts(workload: Workload, log: ImportLog) -> None:
    early = early_starts(workload)
    if not len(early):
        return
    log.warn(
        "starts-before-submit",
        f"{plural(len(early), 'job')} started before {'it was' if len(early) == 1 else 'they were'} "
        f"submitted, first {name_of(workload, int(early[0]))}",
        "waits are wrong for them, and perhaps for all: look at the clocks of the log (time zones, daylight "
        "saving, a submit that a requeue moved)",
    )


def _labels(workload: Workload, log: ImportLog) -> None:
    for name, text in _LABELS.items():
        if workload.has(name):
            values = workload.frame[name]
            count = values.filter(values != "").n_unique()
            if count > 1:
                log.leave_out(text.format(count))
