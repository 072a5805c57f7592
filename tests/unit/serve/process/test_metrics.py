import re
import threading

import pytest
from prometheus_client.parser import text_string_to_metric_families

from gpuyard.serve.adapter import GiveBack, Outcome, Start
from gpuyard.serve.process.metrics import Metrics
from gpuyard.serve.records import Happened, Planned, Ranked, RoundRecord, Verdict
from gpuyard.serve.state import ClusterState, Partition, Share
from support.live_states import NOW_S, node, running, state, waiting


def round_record(**more: object) -> RoundRecord:
    known = {"mode": "shadow", "control": "order", "policy": "sjf+easy", "decider": "policy"}
    return RoundRecord(1, NOW_S, NOW_S + 0.5, **{**known, **more})  # type: ignore[arg-type]


def values(metrics: Metrics) -> dict[str, float]:
    """By name and labels, as Prometheus reads them."""
    found = {}
    for family in text_string_to_metric_families(metrics.render().decode()):
        for sample in family.samples:
            labels = ",".join(f"{name}={value}" for name, value in sorted(sample.labels.items()))
            found[f"{sample.name}{{{labels}}}" if labels else sample.name] = sample.value
    return found


def after(record: RoundRecord, live: ClusterState | None = None) -> dict[str, float]:
    metrics = Metrics("1.2.3", "abc", clock=lambda: NOW_S + 3.0)
    metrics.observe_round(record, live or state())
    return values(metrics)


def test_the_agent_says_who_it_is_what_it_does_and_that_it_lives() -> None:
    found = after(round_record(timings_s={"list": 0.2, "decide": 0.003, "odd": 9.0}))
    assert found["gpuyard_build_info{model=abc,version=1.2.3}"] == 1
    assert (found["gpuyard_mode{mode=shadow}"], found["gpuyard_mode{mode=halted}"]) == (1, 0)
    assert found["gpuyard_heartbeat_timestamp_seconds"] == NOW_S + 0.5
    assert found["gpuyard_snapshot_age_seconds"] == 2.5
    assert found["gpuyard_cycle_duration_seconds_sum{phase=list}"] == 0.2
    assert found["gpuyard_cycle_duration_seconds_bucket{le=0.005,phase=decide}"] == 1
    assert not [name for name in found if "odd" in name]


def test_actions_are_counted_by_what_became_of_them() -> None:
    verdicts = (
        Verdict("1-1", "7", "start"),
        Verdict("1-2", "8", "start", rule="fits", words="no"),
        Verdict("1-3", "9", "reorder", error="refused"),
    )
    found = after(round_record(verdicts=verdicts, decider="fallback", cause="deadline"))
    assert found["gpuyard_decisions_total{action=start,verdict=allowed}"] == 1
    assert found["gpuyard_decisions_total{action=start,verdict=refused}"] == 1
    assert found["gpuyard_decisions_total{action=reorder,verdict=failed}"] == 1
    assert found["gpuyard_guard_rejections_total{rule=fits}"] == 1
    assert found["gpuyard_fallbacks_total{cause=deadline}"] == 1
    assert found["gpuyard_rounds_total{decider=fallback}"] == 1


def test_starts_of_the_scheduler_are_compared_with_what_the_policy_wanted_a_round_before() -> None:
    metrics = Metrics("1")
    metrics.observe_round(round_record(starts=(Planned("7", (("n1", 1),)),)), state())
    happened = (
        Happened("7", "started", NOW_S),
        Happened("8", "started", NOW_S),
        Happened("9", "ended", NOW_S),
    )
    metrics.observe_round(round_record(happened=happened), state())
    found = values(metrics)
    assert found["gpuyard_shadow_decisions_total{agrees=true}"] == 1
    assert found["gpuyard_shadow_decisions_total{agrees=false}"] == 1


def test_queues_are_counted_and_those_that_are_empty_again_are_empty() -> None:
    jobs = (waiting("1", 4, 100.0), waiting("2", 2, 900.0, held="other"), waiting("3", 1, left="array"),
            waiting("4", 1, held="agent"), running("5", Share("n1", 3)))  # fmt: skip
    metrics = Metrics("1")
    metrics.observe_round(round_record(happened=(Happened("5", "started", NOW_S),)), state(*jobs))
    found = values(metrics)
    assert found["gpuyard_pending_jobs{queue=gpu,reason=queued}"] == 2
    assert found["gpuyard_pending_jobs{queue=gpu,reason=held}"] == 1
    assert found["gpuyard_pending_jobs{queue=gpu,reason=left}"] == 1
    assert found["gpuyard_pending_gpus{queue=gpu}"] == 8
    assert found["gpuyard_oldest_pending_seconds{queue=gpu}"] == 900.0
    assert found["gpuyard_jobs_held"] == 1
    assert found["gpuyard_job_wait_seconds_count{queue=gpu}"] == 1
    assert found["gpuyard_job_wait_seconds_sum{queue=gpu}"] == 110.0
    metrics.observe_round(round_record(), state())
    found = values(metrics)
    assert found["gpuyard_pending_gpus{queue=gpu}"] == 0
    assert not [name for name in found if name.startswith("gpuyard_pending_jobs{")]


def test_gpus_are_used_free_closed_or_free_in_pieces_of_no_use() -> None:
    nodes = (node("n1"), node("n2"), node("n3", closed="down"), node("n4", gpus_used=6))
    found = after(
        round_record(), state(running("5", Share("n1", 3)), running("6", Share("n2", 8)), nodes=nodes)
    )
    assert [found[f"gpuyard_gpus{{state={kind}}}"] for kind in ("used", "free", "closed")] == [17, 7, 8]
    assert [found[f"gpuyard_unusable_free_gpus{{gang={gang}}}"] for gang in (1, 2, 4, 8)] == [0, 1, 3, 7]


def test_what_the_scheduler_did_not_do_is_counted_by_code() -> None:
    metrics = Metrics("1")
    stopping = Start("7", ("n1",), "1-1", stop=("3", "4"))
    outcomes = [
        Outcome(GiveBack("7", "x"), "no", "timeout"),
        Outcome(GiveBack("8", "x"), "no", "job 8 odd"),
        Outcome(stopping),
    ]
    metrics.count_outcomes(outcomes, "slurm")
    metrics.set_leader(True)
    found = values(metrics)
    assert found["gpuyard_apply_errors_total{backend=slurm,code=timeout}"] == 1
    assert found["gpuyard_apply_errors_total{backend=slurm,code=other}"] == 1
    assert found["gpuyard_preemptions_total{cause=policy}"] == 2
    assert found["gpuyard_leader"] == 1


def test_there_is_no_label_of_a_user_or_job_and_every_duration_is_in_seconds() -> None:
    jobs = (waiting("4711", user="mallory"), running("4712", Share("n1", 3), user="mallory"))
    record = round_record(
        order=(Ranked("4711"),), starts=(Planned("4711", ()),), verdicts=(Verdict("1-1", "4711", "start"),),
        happened=(Happened("4712", "started", NOW_S),),
    )  # fmt: skip
    metrics = Metrics("1")
    metrics.observe_round(record, state(*jobs))
    text = metrics.render().decode()
    assert not re.findall("mallory|471[12]|milli|_ms", text)
    names = {family.name for family in metrics.registry.collect()}
    assert all(name.startswith("gpuyard_") for name in names)


def test_names_from_the_cluster_are_escaped_and_bounded() -> None:
    odd = 'a"\n\\b'
    jobs = tuple(waiting(str(number), partition=f"p{number}") for number in range(500))
    live = state(waiting("x", partition=odd), *jobs, partitions=(Partition("gpu", ("n1",)),))
    found = after(round_record(), live)
    assert found[f"gpuyard_pending_gpus{{queue={odd}}}"] == 1
    assert len([name for name in found if name.startswith("gpuyard_pending_gpus")]) < 210
    assert found["gpuyard_pending_gpus{queue=(others)}"] > 200


def test_it_can_be_read_while_rounds_are_counted() -> None:
    metrics, ends = Metrics("1"), threading.Event()
    live = state(*(waiting(str(number)) for number in range(50)))

    def observe() -> None:
        while not ends.is_set():
            metrics.observe_round(round_record(), live)

    thread = threading.Thread(target=observe)
    metrics.observe_round(round_record(), live)
    thread.start()
    try:
        counts = {values(metrics)["gpuyard_pending_jobs{queue=gpu,reason=queued}"] for _ in range(50)}
    finally:
        ends.set()
        thread.join()
    assert counts == {50.0}


@pytest.mark.parametrize("name", ["cycle_duration_seconds", "job_wait_seconds"])
def test_durations_and_waits_are_histograms(name: str) -> None:
    kinds = {family.name: family.type for family in Metrics("1").registry.collect()}
    assert kinds[f"gpuyard_{name}"] == "histogram"
