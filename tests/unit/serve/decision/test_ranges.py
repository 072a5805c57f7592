"""A learned policy that is shown what it never saw in training does not decide, and it is said why."""

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gpuyard.cluster.model import parse_cluster
from gpuyard.env import SchedulingVectorEnv
from gpuyard.errors import InputError
from gpuyard.network.config import NetworkConfig
from gpuyard.network.model_file import ModelFile, write_model
from gpuyard.network.observed import KEY
from gpuyard.network.policy import LearnedPolicy
from gpuyard.network.sizes import NetworkSizes
from gpuyard.network.tensors import expected_tensors
from gpuyard.policies.base import as_policy
from gpuyard.policies.grammar import parse_policy
from gpuyard.serve.decision.choosing import Chooser
from gpuyard.serve.decision.deciding import encoder_for
from gpuyard.serve.decision.live_cluster import live_cluster
from gpuyard.serve.decision.memory import Memory
from gpuyard.serve.decision.ranges import range_check, range_notes
from gpuyard.serve.decision.snapshot import LiveSnapshot
from gpuyard.serve.journal import Journal
from gpuyard.serve.process.log import Log
from gpuyard.serve.process.service import Service
from gpuyard.serve.settings import ServeSettings
from gpuyard.serve.state import ClusterState
from gpuyard.workload.generators import preset_workload
from support.fake_cluster import FakeCluster
from support.live_states import state, waiting

SETTINGS = ServeSettings(mode="shadow", deadline_ms=60_000.0)
Narrow = dict[str, tuple[float, float]]


def trained(observed: bool = True, cluster: Any = None, **narrow: Narrow) -> ModelFile:
    """A network like its base policy, which saw all that can be but in some columns."""
    workload = preset_workload("bursty-8gpu", jobs=60, max_gpus=4).workload
    cluster = cluster or live_cluster(state())
    env = SchedulingVectorEnv("select-job", 1, threads=1, workload=workload, cluster=cluster, window=32)
    config = NetworkConfig(kind="job-scorer", width=8, residual="base")
    shapes = expected_tensors(config, NetworkSizes.of(env.model))
    tensors = {name: np.zeros(shape, np.float32) for name, shape in shapes.items()}
    document: dict[str, Any] = {"observations": 1}
    for part, columns in env.model.parts.items():
        bounds = zip(columns.names, columns.low.tolist(), columns.high.tolist(), strict=True)
        document[part] = [[name, *narrow.get(part, {}).get(name, (low, high))] for name, low, high in bounds]
    return ModelFile.of(env.model, config, tensors, {KEY: document} if observed else {})


def learned(**narrow: Narrow) -> LearnedPolicy:
    return LearnedPolicy("learned", trained(**narrow))


def live(policy: LearnedPolicy, at: ClusterState) -> LiveSnapshot:
    memory = Memory()
    memory.update(at, 1000.0, SETTINGS.estimates)
    return encoder_for(policy, SETTINGS).encode(at, memory)


def said(at: ClusterState, **narrow: Narrow) -> str:
    """What is said of a state if training saw less than everything in some columns."""
    policy = learned(**narrow)
    check = range_check(policy)
    assert check is not None
    return check(live(policy, at))


ONE = state(waiting("1", 4, waited_s=3600.0))
MANY = state(*(waiting(str(i), 1, waited_s=1200.0) for i in range(30)), waiting("30", 1, waited_s=10_800.0))


def test_what_was_seen_in_training_is_fine() -> None:
    assert said(ONE) == ""
    assert said(ONE, jobs={"wait": (0.1, 0.6)}, globals={"queue": (0.0, 0.02)}) == ""


@pytest.mark.parametrize(
    ("least", "largest", "words"),
    [
        (0.01, 0.36, "wait of a job: 0.50, in training 0.01 to 0.36"),
        (0.01, 0.46, ""),  # within a tenth of the range
        (0.3, 0.46, ""),  # within the least slack
        (0.3, 0.44, "wait of a job: 0.50, in training 0.30 to 0.44"),
        (0.6, 0.7, "wait of a job: 0.50, in training 0.60 to 0.70"),
        (0.54, 0.7, ""),
    ],
)
def test_a_column_counts_as_unseen_beyond_a_slack(least: float, largest: float, words: str) -> None:
    assert said(ONE, jobs={"wait": (least, largest)}) == words


def test_one_odd_job_of_many_is_no_reason_but_several_are() -> None:
    assert said(MANY, jobs={"wait": (0.0, 0.3)}) == ""
    more = state(*MANY.jobs[:-1], *(waiting(str(i), 1, waited_s=10_800.0) for i in (30, 31)))
    assert (
        said(more, jobs={"wait": (0.0, 0.3)})
        == "wait of a job: 0.75, in training 0.00 to 0.30 (2 of 32 jobs)"
    )


def test_rows_of_the_view_without_a_job_do_not_count() -> None:
    assert said(ONE, jobs={"present": (1.0, 1.0), "wait": (0.4, 0.6)}) == ""


def test_a_queue_or_nodes_unlike_those_of_training_are_told() -> None:
    assert said(MANY, globals={"queue": (0.0, 0.2)}) == "queue: 0.33, in training 0.00 to 0.20"
    words = said(ONE, nodes={"cpus": (0.0, 0.0)})
    assert words == "cpus of a node: 1.00, in training 0.00 to 0.00 (2 of 2 nodes)"


def test_columns_of_one_name_are_told_apart() -> None:
    words = said(ONE, globals={"lookahead": (0.9, 1.0)})
    assert words.startswith("lookahead 0: 0.00, in training 0.90 to 1.00; lookahead 1: ")
    assert words.endswith("; and 13 more columns")


def test_the_worst_columns_come_first() -> None:
    words = said(ONE, jobs={"wait": (0.0, 0.4), "estimate": (0.0, 0.1), "gpus_log": (0.0, 0.3)})
    assert [part.split()[0] for part in words.split("; ")] == ["estimate", "gpus_log", "wait"]


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_numbers_that_are_not_finite_are_told_whatever_else_there_is(
    monkeypatch: pytest.MonkeyPatch, value: float
) -> None:
    policy = learned(jobs={"wait": (0.0, 0.1)})
    check = range_check(policy)
    snapshot = live(policy, MANY)
    jobs, nodes, overall = policy.observe(snapshot.snapshot)
    jobs[3, 1] = value
    monkeypatch.setattr(policy, "observe", lambda _: (jobs, nodes, overall))
    assert check is not None
    assert check(snapshot) == "wait of a job: not a finite number"


def test_without_waiting_jobs_there_is_nothing_to_compare() -> None:
    assert said(state(), globals={"gpu_use": (0.9, 1.0)}) == ""


def test_the_fallback_decides_for_a_policy_out_of_its_range_and_the_policy_again_after() -> None:
    policy = learned(jobs={"wait": (0.0, 0.3)})
    settings = SETTINGS.model_copy(update={"good_rounds": 2})
    chooser = Chooser(settings, policy, parse_policy("fifo+easy"), None, range_check(policy))
    memory = Memory()
    try:
        deciders = []
        for waited_s in (600.0, 3600.0, 600.0, 600.0):
            at = state(waiting("1", 4, waited_s=waited_s))
            memory.update(at, 1000.0, settings.estimates)
            choice = chooser.choose(at, memory)
            deciders.append((choice.decider, choice.cause))
            if waited_s == 3600.0:
                assert choice.words == "wait of a job: 0.50, in training 0.00 to 0.30"
    finally:
        chooser.close()
    out = ("fallback", "out-of-range")
    assert deciders == [("policy", ""), out, out, ("policy", "")]


def test_policies_of_which_nothing_is_known_are_not_checked() -> None:
    assert range_check(as_policy(parse_policy("sjf+easy"))) is None
    assert range_check(LearnedPolicy("old", trained(observed=False))) is None


def test_a_damaged_entry_is_refused_before_anything_is_served() -> None:
    model = trained()
    model.training[KEY].pop("jobs")  # type: ignore[union-attr]
    with pytest.raises(InputError, match="observed of a model"):
        range_check(LearnedPolicy("damaged", model))


def test_notes_tell_what_is_not_compared_and_what_is_another_cluster() -> None:
    here, elsewhere = live_cluster(state()), parse_cluster("4x8")
    assert range_notes(as_policy(parse_policy("sjf+easy")), here) == ()
    assert range_notes(learned(), here) == ()
    (note,) = range_notes(learned(), elsewhere)
    assert "was trained on cluster live (2 nodes, 16 GPUs), but runs on" in note
    (note,) = range_notes(LearnedPolicy("old", trained(observed=False)), here)
    assert note.startswith("policy old does not say which values it saw in training")


@pytest.mark.parametrize("observed", [True, False])
def test_the_service_checks_ranges_and_says_once_what_it_cannot_compare(
    tmp_path: Path, observed: bool
) -> None:
    cluster = FakeCluster({"n1": 8, "n2": 8}, held=False)
    cluster.submit("1", gpus=4)
    own = live_cluster(cluster.observe())
    path = tmp_path / "model.safetensors"
    write_model(path, trained(observed, own, globals={"queue": (0.5, 1.0)}))
    settings = ServeSettings(policy=str(path), state_dir=tmp_path / "state", interval_s=0.1, deadline_ms=6e4)
    stream = io.StringIO()
    Service(settings, lambda _: cluster, Log(stream)).run(rounds=2)
    events = [json.loads(line) for line in stream.getvalue().splitlines()]
    unlike = [event for event in events if event["event"] == "unlike training"]
    assert len(unlike) == (0 if observed else 1)
    with Journal.open(settings.journal) as journal:
        last = journal.last()
    assert last is not None
    assert (last.decider, last.cause) == (("fallback", "out-of-range") if observed else ("policy", ""))
