"""What waiting jobs ask for, recorded on a real Slurm 22.05 (4 nodes, each 4 GPUs, 32 CPUs, 250 GiB)."""

import json
from pathlib import Path
from typing import Any

import pytest

from gpuyard.serve.slurm.requests import Asked, Place, UnclearError, asked

DATA = Path(__file__).parents[3] / "live" / "recorded"
PLACE = Place(most_gpus=4, most_cpus=32, memory_sizes_mib=frozenset({256_000}))
WHOLE = 256_000
SHAPES = {
    job["job_id"]: job for job in json.loads((DATA / "22.05" / "squeue-shapes.json").read_text())["jobs"]
}


@pytest.mark.parametrize(
    ("number", "options", "expected"),
    [
        (10, "--gres=gpu:2", Asked(2, 1, 1, WHOLE)),
        (11, "--gpus=8", Asked(8, 0, 2, 2 * WHOLE)),
        (12, "--gpus=3 -N1", Asked(3, 1, 1, WHOLE)),
        (13, "--gpus=8 -N2", Asked(8, 2, 2, 2 * WHOLE)),
        (14, "--gpus-per-node=2 -N2", Asked(4, 2, 2, 2 * WHOLE)),
        (15, "--gpus-per-task=1 -n4", Asked(4, 1, 4, WHOLE)),
        (16, "--gpus-per-task=2 -n2 -N2 --ntasks-per-node=1", Asked(4, 2, 2, 2 * WHOLE)),
        (18, "--gres=gpu:1 --mem-per-gpu=1000", Asked(1, 1, 1, 1000)),
        (19, "--gres=gpu:2 --cpus-per-gpu=4", Asked(2, 1, 8, WHOLE)),
        (21, "--gres=gpu:1 --exclusive", Asked(1, 1, 1, WHOLE, exclusive=True)),
        (23, "--gres=gpu:1 -n8 -c2 --mem-per-cpu=500", Asked(1, 1, 16, 8000)),
        (24, "--gres=gpu:1 -N2 --ntasks-per-node=4 -c2", Asked(2, 2, 16, 2 * WHOLE)),
        (34, "--gres=gpu:1 --oversubscribe", Asked(1, 1, 1, WHOLE)),
    ],
)
def test_requests_are_read_as_their_users_meant_them(number: int, options: str, expected: Asked) -> None:
    assert asked(SHAPES[number], PLACE) == expected, options


@pytest.mark.parametrize(
    ("number", "why"),
    [
        (17, "leaves their place open"),  # --gpus-per-socket
        (20, "a range of nodes"),  # -N2-4
        (22, "within its user"),  # --exclusive=user
        (32, "no GPUs"),
        (37, "do not fit on one node"),  # --gres=gpu:1 -n40 on nodes of 32 CPUs
        (40, "a range of nodes"),  # --gpus=8 -N2-3
    ],
)
def test_what_cannot_be_known_is_not_guessed(number: int, why: str) -> None:
    with pytest.raises(UnclearError, match=why):
        asked(SHAPES[number], PLACE)


def job(**fields: Any) -> dict[str, Any]:
    return {"tres_req_str": "cpu=1,mem=1G,node=1", "cpus": 1, "memory_per_node": 1024, **fields}


@pytest.mark.parametrize(
    ("written", "gpus", "types"),
    [
        ("gres:gpu:a100:3", 3, ("a100",)),
        ("gres/gpu:a100:3", 3, ("a100",)),
        ("gres/gpu:a100=3", 3, ("a100",)),
        ("gres/gpu=3", 3, None),
        ("gres:gpu", 1, None),
        ("gres:gpu:h100", 1, ("h100",)),
    ],
)
def test_gpus_are_read_in_every_spelling(written: str, gpus: int, types: tuple[str, ...] | None) -> None:
    found = asked(job(tres_per_node=written), PLACE)
    assert (found.gpus, found.gpu_types) == (gpus, types)


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"tres_per_node": "gres:gpu:1,gres:shard:2"}, "asks for shard"),
        ({"tres_per_node": "gres:gpu:1,gres:nvme:1"}, "asks for nvme"),
        ({"tres_per_node": "gres:gpu:a100:1,gres:gpu:h100:1"}, "several types"),
        ({"tres_per_job": "gres:gpu:a100:2", "tres_per_node": "gres:gpu:h100:1"}, "several types"),
        ({"tres_per_job": "gres:gpu:7", "max_nodes": 2, "tres_req_str": "node=2"}, "divide evenly"),
        ({"tres_per_job": "gres:gpu:7", "tres_per_node": "gres:gpu:2"}, "do not fit together"),
        (
            {"tres_per_node": "gres:gpu:1", "memory_per_node": None, "memory_per_tres": "gres:x:1"},
            "memory per",
        ),
        ({"tres_per_node": "gres:gpu:1:2:3"}, "unknown"),
        ({"tres_per_task": "gres:gpu:2", "tasks": 3}, "GPUs per task do not fit"),
    ],
)
def test_unusual_requests_are_left_to_slurm(fields: dict[str, Any], why: str) -> None:
    with pytest.raises(UnclearError, match=why):
        asked(job(**fields), PLACE)


def test_a_job_without_memory_takes_that_of_whole_nodes_if_they_are_of_one_size() -> None:
    bare = job(tres_per_node="gres:gpu:1", memory_per_node=None)
    assert asked(bare, PLACE).memory_mib == WHOLE
    assert asked(bare, PLACE, counts_memory=False).memory_mib == 0
    with pytest.raises(UnclearError, match="several sizes"):
        asked(bare, Place(4, 32, frozenset({1000, 2000})))


def test_cpus_are_whole_cores() -> None:
    assert asked(job(tres_per_node="gres:gpu:1", cpus=3), Place(4, 32, frozenset({1}), threads=2)).cpus == 4
