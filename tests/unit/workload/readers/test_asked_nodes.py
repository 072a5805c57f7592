"""How many nodes the users of a log asked for."""

import polars as pl
import pytest

from gpuyard.workload import import_trace
from gpuyard.workload.readers.asked_nodes import with_asked_nodes
from gpuyard.workload.readers.lsf import asked_hosts
from gpuyard.workload.readers.lsf_records import JobFinish


def asked(*jobs):
    """``nodes`` of jobs given as (GPUs, nodes stated, nodes got)."""
    schema = {"gpus": pl.Int64, "nodes": pl.Int64, "allocated_nodes": pl.Int64}
    return with_asked_nodes(pl.DataFrame(jobs, schema, orient="row"))["nodes"].to_list()


def test_gpus_in_equal_parts_on_more_nodes_than_they_need_were_asked_for_so():
    full_node, spread, needed, uneven = (8, None, 1), (8, None, 2), (16, None, 2), (7, None, 2)
    assert asked(full_node, spread, needed, uneven) == [None, 2, None, None]


def test_a_stated_number_stands_and_one_says_nothing():
    assert asked((8, None, 1), (8, 4, 4), (8, 1, 2), (8, 2, None)) == [None, 4, None, 2]


def test_a_job_without_gpus_keeps_the_nodes_that_it_got():
    assert asked((0, None, 3), (0, 1, 2), (0, None, 1), (0, None, None)) == [3, 2, None, None]


def sacct(tmp_path, *rows, fields="NNodes|ReqTRES|AllocTRES"):
    times = "2024-03-01T08:00:00|2024-03-01T08:01:00|01:00:00"
    lines = [f"{7 + number}|{times}|{row}" for number, row in enumerate(rows)]
    path = tmp_path / "sacct.txt"
    path.write_text("\n".join([f"JobID|Submit|Start|Elapsed|{fields}", *lines]) + "\n")
    return import_trace([path]).workload.column("nodes").to_list()


def test_slurm_states_them_in_the_request(tmp_path):
    rows = ("2|node=2,gres/gpu=8|gres/gpu=8", "2|node=1,gres/gpu=8|gres/gpu=8", "1||gres/gpu=8")
    assert sacct(tmp_path, *rows) == [2, None, None]


def test_the_field_reqnodes_goes_before_the_request(tmp_path):
    fields = "NNodes|ReqNodes|ReqTRES|AllocTRES"
    assert sacct(tmp_path, "3|3|node=1|gres/gpu=6", "1||node=1|gres/gpu=8", fields=fields) == [3, None]


def test_without_a_request_slurm_only_tells_what_was_got(tmp_path):
    assert sacct(tmp_path, "2||gres/gpu=8", "1||gres/gpu=8", "2||gres/gpu=16") == [2, None, None]


@pytest.mark.parametrize(
    ("request_text", "slots", "nodes"),
    [
        ("span[ptile=4]", 16, 4),
        ("select[mem>1] span[ ptile = 6 ] rusage[mem=1]", 16, 3),
        ("span[hosts=1]", 16, 1),
        ("rusage[mem=1]", 16, None),
    ],
)
def test_lsf_states_them_as_span(request_text, slots, nodes):
    job = JobFinish(1, 0, 0, 0, "ann", "gpu", slots, (), 64, request_text)
    assert asked_hosts(job) == nodes
