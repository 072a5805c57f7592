"""What a native run that is looked at now and then says of a job equals what every snapshot says."""

import math
from typing import Any

import pytest

from gpuyard import _core
from gpuyard.cluster.model import parse_cluster
from gpuyard.config import SimulationConfig
from gpuyard.native.inputs import prepare
from gpuyard.policies.grammar import PolicySpec, parse_policy
from gpuyard.simulation import watch
from gpuyard.simulation.run import simulate
from gpuyard.simulation.watch import Past, Watch
from gpuyard.workload import SynthConfig, synthesize
from gpuyard.workload.schema import microseconds

CLUSTER = parse_cluster("2x8")
JOBS = synthesize(SynthConfig(jobs=150, cluster_gpus=16, load=1.5, overestimation=2.0, seed=4))
COSTS = {"checkpoint_s": 30.0, "restore_s": 20.0}
FAILURES = {"node_mtbf_s": 40_000.0, "node_mttr_s": 600.0}
CASES: list[tuple[str, dict[str, Any]]] = [
    *(
        (policy, {})
        for policy in ("srtf", "ssf+greedy", "las", "las-2d", "tiresias", "gittins", "srtf/spread")
    ),
    *((policy, COSTS) for policy in ("srtf", "las", "gittins+greedy")),
    *((policy, FAILURES) for policy in ("sjf+easy", "fifo+conservative", "srtf", "fair-share+easy")),
    ("fifo+easy", {"sleep_after_s": 60.0, "wake_s": 30.0}),
    ("fifo+greedy", {"defragment": True}),
]


def past_of(policy: PolicySpec, config: SimulationConfig) -> Past:
    result = simulate(JOBS, CLUSTER, policy, config)
    submit_us = microseconds(JOBS.frame["submit_s"])[result.schedule.job]
    return Past(prepare(JOBS, CLUSTER, policy, config), submit_us, result.schedule)


def step_by_step(past: Past, policy: PolicySpec, entry: int, every: int) -> Watch:
    """The policy decides on a snapshot of every instant."""
    seen, native, simulator = Watch(entry, every=every), policy.compile(), past.simulator()
    begin_s, decisions = past.schedule.start_us[entry] / 1e6, 0
    while not simulator.has_finished(entry) and simulator.advance():
        if not len(simulator.waiting):
            continue
        snapshot = simulator.snapshot()
        decision = _core.decide(snapshot, native)
        starts = [job for job, _ in decision.starts]
        if entry in simulator.waiting:
            if decisions % every == 0 or entry in starts:
                seen.ask(snapshot, native)
                later = [job for job in starts if past.submit_us[job] > past.submit_us[entry]]
                if later and snapshot.now_s < begin_s:
                    seen.see_starts(snapshot, native, later)
            decisions += 1
        for job, stops in decision.stops:
            if entry in stops:
                seen.stopped_for[snapshot.now_s] = job
        simulator.apply(decision)
    return seen


def comparable(seen: Watch) -> dict[str, Any]:
    """NaN, which a time that nobody knows is, equals nothing."""
    told = [
        (at_s, {name: None if value != value else value for name, value in said.items()})
        for at_s, said in seen.asked
    ]
    return vars(seen) | {"asked": told}


@pytest.mark.parametrize("most_asked", [1_000, 5], ids=["all", "some"])
@pytest.mark.parametrize(("policy", "settings"), CASES)
def test_looking_now_and_then_says_what_looking_always_says(
    monkeypatch: pytest.MonkeyPatch, policy: str, settings: dict[str, Any], most_asked: int
) -> None:
    monkeypatch.setattr(watch, "MOST_ASKED", most_asked)
    spec, config = parse_policy(policy), SimulationConfig(estimates="requested", **settings)
    past = past_of(spec, config)
    waits_us = past.schedule.start_us - past.submit_us
    longest = waits_us.argsort()[::-1][:3].tolist()
    for entry in [*longest, 20, 90]:
        found = watch._decided_again(past, spec, entry, None)
        assert comparable(found) == comparable(step_by_step(past, spec, entry, found.every))
        assert math.isclose(found.asked[0][0], past.submit_us[entry] / 1e6)


def test_a_run_is_watched_until_its_job_is_done_and_no_further() -> None:
    spec, config = parse_policy("srtf"), SimulationConfig(estimates="requested")
    past = past_of(spec, config)
    inputs = past.inputs
    run = watch.run_until_done(inputs, spec, 20)
    assert 1 <= run.finished < len(JOBS)
    so_far, whole = watch.schedule_so_far(inputs, run), past.schedule
    over = so_far.end_us <= so_far.end_us[20]
    assert over.sum() == run.finished
    assert so_far.end_us[over].tolist() == whole.end_us[over].tolist()
    assert so_far.start_us[over].tolist() == whole.start_us[over].tolist()
    assert so_far.start_us.max() == watch.NEVER
    run.look(1)
    while run.advance():
        assert run.decision is not None
    assert not run.advance()
    with pytest.raises(RuntimeError, match="once"):
        run.look(1)


def test_waits_between_runs_are_asked_about_now_and_then_too(monkeypatch: pytest.MonkeyPatch) -> None:
    spec, config = parse_policy("las"), SimulationConfig(estimates="requested")
    past = past_of(spec, config)
    entry = int((past.schedule.end_us - past.submit_us).argmax())
    starts = int((past.schedule.pieces().entry == entry).sum())
    whole = watch._decided_again(past, spec, entry, None)
    monkeypatch.setattr(watch, "MOST_ASKED", 5)
    some = watch._decided_again(past, spec, entry, None)
    assert (whole.every, some.every > 1, starts > 1) == (1, True, True)
    assert len(some.asked) <= len(whole.asked) // some.every + 1 + starts
    begins = [at_s for at_s, said in some.asked if said["verdict"] == "starts"]
    assert begins == [at_s for at_s, said in whole.asked if said["verdict"] == "starts"]
