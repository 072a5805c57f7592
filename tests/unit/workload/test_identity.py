"""A job is named by the log's own id, then by its row, everywhere alike."""

import polars as pl
import pytest

from gpuyard.errors import InputError
from gpuyard.workload import Workload, make_workload
from gpuyard.workload.identity import JobName, find_job, name_of


def log(ids: list[str], rows: list[int] | None = None) -> Workload:
    count = len(ids)
    columns = {"submit_s": range(count), "duration_s": [1.0] * count, "gpus": [1] * count, "source_id": ids}
    return make_workload(pl.DataFrame(columns | ({} if rows is None else {"row": rows})))


def test_the_logs_own_id_goes_before_the_row() -> None:
    jobs = log(["3", "995584", "12"], rows=[7, 16, 3])
    assert [find_job(jobs, name) for name in ("995584", 3, "row:3", "16", 7)] == [1, 0, 2, 1, 0]
    assert str(name_of(jobs, 1)) == "job 995584 (row 16)"
    assert str(JobName(16)) == "row 16"


def test_ids_of_several_jobs_name_the_choices() -> None:
    jobs = log(["77_1", "77_2", "5", "5", "770"])
    with pytest.raises(InputError, match=r"77 names 2 jobs: 77_1 \(row:0\), 77_2 \(row:1\); give one"):
        find_job(jobs, "77")
    with pytest.raises(InputError, match=r"5 names 2 jobs: row:2, row:3; give one of these"):
        find_job(jobs, "5")
    assert find_job(jobs, "77_2") == 1
    assert find_job(jobs, "row:3") == 3
    assert find_job(log(["77_1", "x"]), "77") == 0, "an array with one job"
    many = log([f"9[{k}]" for k in range(30)])
    with pytest.raises(InputError, match=r"9 names 30 jobs: .*9\[7\] \(row:7\) and 22 more"):
        find_job(many, 9)


@pytest.mark.parametrize("name", ["8", "x", "", "row:x", "row:", "1" * 40, "-1", "²"])
def test_what_is_not_there_is_refused(name: str) -> None:
    with pytest.raises(InputError, match=r"there is no job .*has ids such as a and rows 0 to 1"):
        find_job(log(["a", "b"]), name)
