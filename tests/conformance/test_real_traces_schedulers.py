"""Public logs of Slurm and LSF and traces of RLTune and Gavel read as their known figures say.

The files lie beside the project (../shared/traces); without them these tests are skipped.
"""

import gzip
import json
import statistics

import polars as pl
import pytest

from gpuyard.cluster.imports.recognise import import_cluster
from gpuyard.errors import InputError
from gpuyard.registry import registered
from gpuyard.workload import import_trace, workload_formats
from gpuyard.workload.chunks import read_head
from gpuyard.workload.intake.seen_cluster import seen_cluster


def rejected(trace):
    return {found.reason: found.rows for found in trace.report.rejected}


def counts(values: pl.Series) -> dict:
    return dict(values.value_counts().iter_rows())


def test_phillips_log_of_slurm(shared_traces):
    trace = import_trace([shared_traces / "slurm-sacct" / "xdmod_phillips.log.gz"])
    jobs = trace.workload.frame
    assert trace.report.format == "slurm-sacct"
    assert trace.report.rows_read == 4285
    # 22 of the 1,717 failed and 239 of the 243 cancelled jobs have an elapsed time of 0.
    assert rejected(trace) == {"never ran: its run time is not positive": 261}
    assert counts(jobs["gpus"]) == {0: 4022, 2: 2}
    assert counts(jobs["status"]) == {"completed": 2324, "failed": 1695, "cancelled": 4, "timeout": 1}
    assert statistics.median(jobs["duration_s"]) == 26
    assert trace.report.repaired == ()
    longest = jobs.filter(pl.col("source_id") == "163485").row(0, named=True)
    assert (longest["duration_s"], longest["estimate_s"]) == (912426, 3247200)  # 10-13:27:06 of 37-14:00:00
    assert (longest["memory_mib"], longest["cpus"], longest["group"]) == (31000, 12, "focaccia")
    marked = jobs.filter(pl.col("source_id") == "167758").row(0, named=True)
    assert marked["memory_mib"] == 24000  # ReqMem is 2147486648Mn: 3,000 MB for each of 8 CPUs


def test_arrays_of_slurm(shared_traces):
    name = "xdmod_unit_accounting-logs-with-job-arrays.log"
    trace = import_trace([shared_traces / "slurm-sacct" / name])
    # Six lines: one task, and lists of 3, 2, 4, 4 and 9 tasks, which name six tasks again.
    assert (trace.report.rows_read, trace.report.jobs, trace.report.merged) == (1 + 3 + 2 + 4 + 4 + 9, 17, 6)
    assert set(trace.workload.frame["memory_mib"]) == {3000 * 256}  # 3000Mc


def test_unit_log_of_slurm(shared_traces):
    trace = import_trace([shared_traces / "slurm-sacct" / "xdmod_unit_accounting-logs.log"])
    assert trace.workload.frame["duration_s"].to_list() == [259200, 252184, 50449]
    assert trace.report.jobs == 3  # the fourth was allocated for 0 s


def test_aws_form_of_slurm_with_steps(shared_traces):
    trace = import_trace([shared_traces / "slurm-sacct" / "aws_sacct-output-v1.txt.gz"])
    assert trace.report.rows_read == 878
    # 483 jobs and 395 steps; 109 jobs ran for 0 s, and 21 of the steps are theirs.
    assert (trace.report.jobs, trace.report.merged) == (374, 374)
    assert sum(rejected(trace).values()) == 109 + 21
    assert trace.workload.metadata.epoch_s == 1645205561


def test_lsf_log(shared_traces):
    trace = import_trace([shared_traces / "lsf" / "aws_lsb.acct.16.gz"])
    assert trace.report.rows_read == 82
    assert rejected(trace) == {
        "never ran: its run time is not positive": 13
    }  # ended in the second they began
    assert trace.report.repaired == ()
    assert trace.workload.frame["estimate_s"].null_count() == 69  # all without a limit


def test_lsf_log_of_version_9_with_multiplied_hosts(shared_traces):
    trace = import_trace([shared_traces / "lsf" / "xdmod_unit_accounting-logs.log"])
    job = trace.workload.frame.row(0, named=True)
    assert (trace.report.jobs, trace.report.merged) == (1, 1)  # the same job twice, hosts written in two ways
    assert (job["cpus"], job["duration_s"], job["estimate_s"]) == (
        128,
        40368,
        43200,
    )  # 8 x "16*host", -W 12:00
    assert job["memory_mib"] == 10474


def test_lsf_event_log_is_refused(shared_traces):
    with pytest.raises(InputError, match=r"lsb\.acct"):
        import_trace([shared_traces / "lsf" / "aws_lsb.events.gz"])


SIX = {
    "slurm-sacct/xdmod_phillips.log.gz": (),  # 2 of its jobs have GPUs
    "slurm-sacct/aws_sacct-output-v1.txt.gz": (
        "no-gpu-field",
        "rejected-rows",
    ),  # 109 of 483 jobs ran for 0 s
    "slurm-sacct/xdmod_unit_accounting-logs.log": ("no-gpus", "rejected-rows"),  # 1 of 4 rows ran for 0 s
    "lsf/aws_lsb.acct.16.gz": ("no-gpus",),
    "lsf/xdmod_unit_accounting-logs.log": ("no-gpus",),
    "swf/RICC-2010-2.swf.gz": (),
}


@pytest.mark.parametrize("name", SIX)
def test_six_real_logs_warn_of_what_is_wrong_with_them_and_of_nothing_else(shared_traces, name):
    report = import_trace([shared_traces / name]).report
    assert tuple(sorted(warning.id for warning in report.warnings)) == SIX[name]
    assert not [warning for warning in report.warnings if not warning.remedy]


def test_real_output_of_sacct_as_json_is_read_and_that_of_other_commands_refused(shared_traces):
    folder = shared_traces.parent / "slurm-json"
    job = import_trace([folder / "22.05" / "sacct.json"]).workload.frame.row(0, named=True)
    assert [
        job[name] for name in ("source_id", "gpus", "cpus", "memory_mib", "duration_s", "estimate_s")
    ] == [*("1", 2, 1, 10, 2, 60)]
    for name in ("22.05/squeue.json", "22.05/sinfo.json", "24.11/jobs.json", "26.05/nodes.json"):
        with pytest.raises(InputError, match="for a log of finished jobs run sacct -a --json"):
            import_trace([folder / name])


def test_real_lists_of_nodes_give_their_cluster(shared_traces):
    folder = shared_traces.parent / "slurm-json"
    for name in ("22.05/sinfo.json", "24.11/nodes.json", "26.05/nodes.json"):
        (group,) = import_cluster({folder / name: (folder / name).read_text()}).cluster.nodes
        assert (group.count, group.gpus, group.type, group.cpus) == (4, 4, "a100", 16)


def test_the_cluster_of_a_real_log_is_derived_from_where_its_jobs_ran(shared_traces):
    path = shared_traces / "slurm-sacct" / "xdmod_phillips.log.gz"
    found = seen_cluster(import_trace([path]).workload, path)
    assert (found.cluster.node_count, found.cluster.total_gpus) == (46, 2)
    assert "100 % of the jobs" in found.notes[0]


def test_rltune_synthetic_trace(shared_traces):
    trace = import_trace([shared_traces / "rltune" / "synthetic_trace.csv.gz"])
    jobs = trace.workload.frame
    assert trace.report.jobs == trace.report.rows_read == 960
    shares = {gpus: round(100 * number / 960) for gpus, number in counts(jobs["gpus"]).items()}
    assert {gpus: shares[gpus] for gpus in (1, 2, 8, 6, 4, 16)} == {1: 46, 2: 15, 8: 13, 6: 11, 4: 9, 16: 4}
    assert set(jobs["gpu_types"].list.first()) == {"T4", "MISC"}
    assert set(jobs["status"]) == {"unknown"}  # all are 2
    assert statistics.median(jobs["duration_s"]) == 4261


@pytest.mark.parametrize(("name", "jobs"), [("small_test", 20), ("medium_test", 20)])
def test_gavel_traces_of_the_physical_cluster(shared_traces, name, jobs):
    folder = shared_traces / "gavel"
    trace = import_trace([folder / f"{name}.trace", folder / "simulation_throughputs.json.gz"])
    assert trace.report.jobs == trace.report.rows_read == jobs
    assert set(trace.workload.frame["submit_s"]) == {0.0}


def test_gavel_trace_made_of_philly(shared_traces):
    folder = shared_traces / "gavel"
    trace = import_trace([folder / "msr_seed0_103959.trace.gz", folder / "simulation_throughputs.json.gz"])
    assert trace.report.rows_read == 986
    # The table has Recommendation, A3C and CycleGAN on one GPU only; the trace also on 2 and 4.
    assert rejected(trace) == {"no throughput of its job type and scale factor on a v100": 125}
    first = trace.workload.frame.row(0, named=True)
    assert first["source_id"] == "0"
    assert 5635991 / first["duration_s"] == pytest.approx(first_throughput(folder), rel=1e-9)


def first_throughput(folder) -> float:
    with gzip.open(folder / "simulation_throughputs.json.gz") as file:
        return json.load(file)["v100"]["('Transformer (batch size 128)', 1)"]["null"]


def test_none_of_the_other_traces_is_taken_for_one_of_these(shared_traces):
    workload_formats()
    folders = {
        "slurm-sacct": "slurm-sacct",
        "lsf": "lsf",
        "rl-trace": "rltune",
        "gavel": "gavel",
        "slurm-jobcomp": "",
    }
    for path in sorted(path for path in shared_traces.glob("*/*") if path.is_file()):
        head = read_head(path)
        taken = [name for name in folders if registered("workload-format")[name].role_of(head, path.name)]
        expected = [name for name, folder in folders.items() if folder == path.parent.name]
        assert taken == ([] if path.name == "ORIGIN.txt" else expected), path
