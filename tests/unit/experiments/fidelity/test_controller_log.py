from pathlib import Path

import pytest

from experiments.fidelity.controller_log import exact_times
from gpuyard import InputError

LINES = """\
[2026-03-01T00:00:00.250] _slurm_rpc_submit_batch_job: JobId=2 InitPrio=5 usec=437
[2026-03-01T00:00:00.100] _slurm_rpc_submit_batch_job: JobId=1 InitPrio=5 usec=437
[2026-03-01T00:00:00.500] sched: Allocate JobId=1 NodeList=gn1 #CPUs=2 Partition=batch
[2026-03-01T00:00:01.500] sched/backfill: _start_job: Started JobId=2 in batch on gn[1-2]
slurmctld: a line of another kind
[2026-03-01T00:00:03.125] _job_complete: JobId=1 WEXITSTATUS 0
[2026-03-01T00:00:03.125] _job_complete: JobId=1 done
[2026-03-01T00:01:00.000] _job_complete: JobId=2 done
"""


def test_times_of_both_schedulers_are_read_in_the_order_of_numbers(tmp_path: Path) -> None:
    path = tmp_path / "slurmctld.log"
    path.write_text(LINES)
    found = exact_times(path)
    assert found["job"].to_list() == [1, 2]
    begin = found["submit_s"][0]
    assert (found["start_s"] - begin).to_list() == pytest.approx([0.4, 1.4])
    assert (found["end_s"] - begin).to_list() == pytest.approx([3.025, 59.9])


def test_a_job_that_did_not_end_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "slurmctld.log"
    path.write_text(LINES.replace("JobId=2 done", "JobId=2 WEXITSTATUS 0"))
    with pytest.raises(InputError, match="job 2 came, started and ended"):
        exact_times(path)
