"""What holds for every schedule with partitions, limits and dependencies: docs/contract/slurm.md.

Written from the inputs and the executions alone; nothing here runs or copies a simulator.
"""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import asdict

from reference.simulator.simulator import UNLIMITED, Job, Node, Outcome, Partition, Qos, Run
from support.invariants import check_nothing_overbooked


def check_nodes_hold_their_jobs(nodes: Sequence[Node], jobs: Sequence[Job], runs: Sequence[Run]) -> None:
    """No GPU, CPU or MiB is held twice."""
    table = [
        {
            "gpus": node.gpus,
            "cpus": UNLIMITED if node.cpus is None else node.cpus,
            "memory_mib": UNLIMITED if node.memory_mib is None else node.memory_mib,
        }
        for node in nodes
    ]
    held = [
        asdict(jobs[run.job])
        | asdict(run)
        | {"shared": jobs[run.job].is_shared, "asked": jobs[run.job].asked_nodes}
        for run in runs
    ]
    check_nothing_overbooked(held, table)


def check_partitions(jobs: Sequence[Job], runs: Sequence[Run], partitions: Sequence[Partition]) -> None:
    """Jobs run on nodes of their partition, within its limits."""
    for run in runs if partitions else ():
        partition = partition_of(jobs[run.job], partitions)
        nodes = {node for node, _ in run.nodes}
        assert nodes <= set(partition.nodes), f"not on nodes of {partition.name}: {run}"
    for partition in partitions:
        its = [run for run in runs if partition_of(jobs[run.job], partitions) == partition]
        check_limits_per_job(jobs, its, partition)
        check_running(jobs, its, "user", partition.max_gpus_per_user, partition.max_jobs_per_user)


def check_qos(jobs: Sequence[Job], runs: Sequence[Run], qos: Sequence[Qos]) -> None:
    for quality in qos:
        its = [run for run in runs if jobs[run.job].qos == quality.name]
        check_limits_per_job(jobs, its, quality)
        check_running(jobs, its, "user", quality.max_gpus_per_user, quality.max_jobs_per_user)
        check_running(jobs, its, "group", quality.max_gpus_per_group)
        check_running(jobs, its, "qos", quality.max_gpus)


def check_dependencies(jobs: Sequence[Job], outcomes: Sequence[Outcome]) -> None:
    """No job starts before those that it waits for have ended."""
    for job, outcome in zip(jobs, outcomes, strict=True):
        for other in job.after:
            if other < len(jobs):
                assert outcome.start_us >= outcomes[other].end_us, f"did not wait for {other}: {job}"


def check_backfilled_at_multiples(outcomes: Sequence[Outcome], every_us: int) -> None:
    """Under the rule `slurm` only the passes at multiples of an interval backfill."""
    for outcome in outcomes:
        is_a_pass = outcome.start_us > 0 and outcome.start_us % every_us == 0
        assert is_a_pass or not outcome.backfilled, f"backfilled between passes: {outcome}"


def partition_of(job: Job, partitions: Sequence[Partition]) -> Partition:
    if not job.partition:
        return next(partition for partition in partitions if partition.default)
    return next(partition for partition in partitions if partition.name == job.partition)


def check_limits_per_job(jobs: Sequence[Job], runs: Sequence[Run], limited: Partition | Qos) -> None:
    for job in (jobs[run.job] for run in runs):
        most = limited.max_gpus_per_job
        assert most is None or job.size <= most, f"larger than {limited}: {job}"
        if limited.max_time_s is not None and job.estimate_s is not None:
            assert job.estimate_s <= limited.max_time_s + 1e-6, f"longer than {limited}: {job}"


def check_running(
    jobs: Sequence[Job], runs: Sequence[Run], by: str, most_gpus: int | None, most_jobs: int | None = None
) -> None:
    """Goes through what is taken and released in order of time and counts what each user or group holds."""
    milli, count = Counter[str](), Counter[str]()
    for change, run in in_order(runs):
        job = jobs[run.job]
        name = getattr(job, by)
        milli[name] += change * job.milli
        count[name] += change
        assert most_gpus is None or milli[name] <= 1000 * most_gpus, f"{by} {name!r} holds too much: {run}"
        assert most_jobs is None or count[name] <= most_jobs, f"{by} {name!r} runs too many jobs: {run}"


def in_order(runs: Sequence[Run]) -> list[tuple[int, Run]]:
    """(1, run) when it takes and (-1, run) when it releases, releases of an instant first."""
    changes: dict[int, list[tuple[int, Run]]] = defaultdict(list)
    for run in runs:
        changes[run.taken_us].append((1, run))
        changes[run.released_us].append((-1, run))
    return [change for us in sorted(changes) for change in sorted(changes[us], key=lambda change: change[0])]
