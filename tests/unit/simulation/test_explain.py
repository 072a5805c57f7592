"""Why a job waited, who went before it and what it was stopped for, where the answer is known by hand."""

import json
import math
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from differential.core_runs import cluster_of, config_of, policy_of, workload_of
from differential.lifecycle_cases import random_failures
from gpuyard import _core, cli
from gpuyard.cluster.model import Cluster, parse_cluster
from gpuyard.config import SimulationConfig
from gpuyard.errors import InputError
from gpuyard.native.inputs import prepare
from gpuyard.policies.grammar import parse_policy
from gpuyard.simulation import watch
from gpuyard.simulation.explain import JobStory, explain_job
from gpuyard.simulation.explain_text import REASONS, periods, sentences
from gpuyard.simulation.run import simulate
from gpuyard.workload import SynthConfig, Workload, make_workload, synthesize
from gpuyard.workload.identity import JobName, name_of
from gpuyard.workload.schema import microseconds
from support.command_line import Run, runner


def jobs(*rows: tuple[float, float, int], **columns: list[Any]) -> Workload:
    """From (submit_s, duration_s, gpus) of each job, and other columns by name."""
    frame = pl.DataFrame(rows, schema=["submit_s", "duration_s", "gpus"], orient="row")
    return make_workload(frame.with_columns(**{name: pl.Series(values) for name, values in columns.items()}))


def story_of(workload: Workload, job: int, cluster: str, policy: str, **settings: Any) -> JobStory:
    config = SimulationConfig(**{"estimates": "exact", **settings})
    return explain_job(workload, parse_cluster(cluster), parse_policy(policy), config, job)


def waits(story: JobStory) -> list[tuple[float, float, str, int | None]]:
    return [(s.from_s, s.to_s, s.reason, s.head and s.head.row) for s in story.waits]


# Five of eight GPUs are busy until 100; then comes a job that needs all, then one that needs three.
GAP = jobs((0, 100, 5), (1, 10, 8), (2, 500, 3))


def test_a_job_that_starts_at_once_waits_for_nothing() -> None:
    story = story_of(jobs((0, 100, 5), (1, 10, 3)), 1, "1x8", "fifo")
    assert (story.waits, story.overtakers, story.made_room) == ([], [], [])
    assert (story.submit_s, story.start_s, story.end_s, story.gpus) == (1.0, 1.0, 11.0, 3.0)
    assert story.free_before == [(0, 3)]
    assert "started at once" in sentences(story)[0]


@pytest.mark.parametrize("policy", ["fifo", "sjf+easy"])
def test_a_job_without_gpus_is_told_nothing_of_gpus(policy: str) -> None:
    # Four CPUs of eight are held until 100; then come a job that needs all of them, and one that needs four.
    waiting = jobs((0, 100, 0), (1, 10, 0), (2, 500, 0), (3, 5, 0), cpus=[4, 8, 5, 4])
    cluster = Cluster.model_validate({"name": "cpus", "nodes": [{"count": 1, "gpus": 0, "cpus": 8}]})
    config = SimulationConfig(estimates="exact")
    for job in (1, 2):
        story = explain_job(waiting, cluster, parse_policy(policy), config, job)
        said = " ".join([*sentences(story), *(span.detail for span in story.waits)])
        assert story.start_s > story.submit_s
        assert "GPU" not in said
        assert f"asked for {waiting.frame['cpus'][job]} CPUs" in said
        assert "CPU" in " ".join(sentences(story)[1:]) or "the nodes" in said


def test_too_few_gpus_are_free() -> None:
    story = story_of(jobs((0, 100, 6), (10, 5, 4)), 1, "1x8", "fifo")
    assert waits(story) == [(10.0, 100.0, "too-few-free", None)]
    assert "needs 4 GPUs, 2 are free" in story.waits[0].detail


def test_enough_gpus_are_free_in_the_wrong_places() -> None:
    story = story_of(jobs((0, 100, 3), (0, 50, 3), (10, 5, 2)), 2, "2x4", "fifo")
    assert waits(story) == [(10.0, 50.0, "fragmented", None)]
    assert "2 are free" in story.waits[0].detail
    assert "at most 1 on one node" in story.waits[0].detail
    assert waits(story_of(jobs((0, 100, 3), (0, 50, 3), (10, 5, 2)), 2, "2x4", "fifo/anywhere")) == []


def test_a_strict_queue_stops_at_its_head() -> None:
    story = story_of(GAP, 2, "1x8", "fifo")
    assert waits(story) == [(2.0, 100.0, "behind-head", 1), (100.0, 110.0, "too-few-free", None)]
    assert "stops at row 1" in story.waits[0].detail


def test_a_greedy_queue_stops_at_an_aged_job() -> None:
    workload = jobs((0, 100, 5), (1, 10, 8), (5, 1, 3), (20, 5, 3))
    assert waits(story_of(workload, 2, "1x8", "sjf+greedy+age:10")) == []  # nobody is aged yet
    story = story_of(workload, 3, "1x8", "sjf+greedy+age:10")
    assert waits(story) == [(20.0, 100.0, "behind-head", 1), (100.0, 110.0, "too-few-free", None)]


@pytest.mark.parametrize("backfill", ["easy", "easy-sjf"])
def test_a_backfilled_job_would_delay_the_head(backfill: str) -> None:
    story = story_of(GAP, 2, "1x8", f"fifo+{backfill}")
    assert waits(story)[0] == (2.0, 100.0, "would-delay-head", 1)
    assert "planned for 1 min 40 s" in story.waits[0].detail
    short = jobs((0, 100, 5), (1, 10, 8), (2, 98, 3))
    assert waits(story_of(short, 2, "1x8", f"fifo+{backfill}")) == []


def test_a_job_holds_a_reservation() -> None:
    story = story_of(GAP, 2, "1x8", "fifo+conservative")
    assert waits(story) == [(2.0, 110.0, "reserved", None)]
    assert "planned for 1 min 50 s" in story.waits[0].detail
    assert story.start_s == 110.0


def test_there_is_no_time_to_reserve_behind_jobs_of_unknown_length() -> None:
    story = story_of(jobs((0, 100, 8), (10, 5, 8)), 1, "1x8", "fifo+conservative", estimates="none")
    assert waits(story) == [(10.0, 100.0, "no-reservation", None)]


def test_the_express_lane_keeps_room_for_shorter_jobs() -> None:
    story = story_of(jobs((0, 100, 5), (2, 500, 3)), 1, "1x8", "fifo+express:1:1")
    assert waits(story) == [(2.0, 100.0, "not-admitted", None)]


def test_a_group_holds_all_of_its_quota() -> None:
    workload = jobs((0, 100, 5), (2, 500, 3), (3, 5, 1), group=["a", "a", "b"])
    story = story_of(workload, 1, "1x8", "fifo", group_quotas={"a": 6}, quota_borrowing=False)
    assert waits(story) == [(2.0, 100.0, "over-quota", None)]
    assert [other.job.row for other in story.overtakers] == [2]
    assert waits(story_of(workload, 1, "1x8", "fifo", group_quotas={"a": 6})) == []


def test_every_reason_has_words() -> None:
    words = {"too-few-free", "fragmented", "behind-head", "would-delay-head", "not-admitted", "over-quota"}
    assert set(REASONS) == words | {"other-limits", "reserved", "no-reservation"}


def test_a_power_cap_is_no_fragmentation() -> None:
    workload = jobs((0, 100, 1), (1, 50, 1))
    story = story_of(workload, 1, "1x4:v100", "fifo", power_cap_w=420)
    assert waits(story) == [(1.0, 100.0, "other-limits", None)]


def test_overtakers_came_later_and_started_earlier() -> None:
    workload = jobs((0, 100, 5), (1, 10, 8), (2, 500, 3), (3, 1, 8))
    story = story_of(workload, 1, "1x8", "sjf+greedy")
    (first, second) = story.overtakers
    assert (first.job.row, first.submit_s, first.start_s, first.gpus, first.backfilled) == (
        2,
        2.0,
        2.0,
        3.0,
        True,
    )
    assert (second.job.row, second.start_s, second.backfilled) == (3, 502.0, False)
    assert "The first to overtake it: row 2, row 3." in sentences(story)
    assert sentences(story)[1].startswith(
        "It waited 8 min 22 s: 2 later jobs overtook it, because greedy let"
    )


STOPPED = jobs((0, 100, 8), (10, 5, 8), (200, 1, 1))


def test_a_stopped_run_names_the_job_that_it_was_stopped_for() -> None:
    story = story_of(STOPPED, 0, "1x8", "srtf", min_run_s=0)
    runs = [
        (run.begin_s, run.stop_s, run.ending, run.stopped_for and run.stopped_for.row) for run in story.runs
    ]
    assert runs == [(0.0, 10.0, "stopped", 1), (18.5, 112.0, "completed", None)]
    assert waits(story) == [(13.5, 18.5, "too-few-free", None)]
    assert "Run 1 was ended for row 1 at 10.0 s." in sentences(story)


def test_a_job_names_those_that_made_room_for_it() -> None:
    story = story_of(STOPPED, 1, "1x8", "srtf", min_run_s=0)
    assert (story.made_room, story.start_s, waits(story)) == ([JobName(0)], 13.5, [])
    assert "Stopped to make room for it: row 0." in sentences(story)


def test_a_moved_job_names_the_job_that_got_its_place() -> None:
    workload = jobs((0, 300, 1), (0, 300, 1), (10, 50, 4))
    how: dict[str, Any] = {"defragment": True, "min_run_s": 0}
    moved, large = (story_of(workload, job, "2x4", "fifo/worst-fit", **how) for job in (0, 2))
    assert [(run.nodes, run.stopped_for) for run in moved.runs] == [([(0, 1)], JobName(2)), ([(1, 1)], None)]
    assert (large.made_room, large.start_s) == ([JobName(0)], 13.5)


def test_a_failed_run_is_told_from_a_stopped_one() -> None:
    how: dict[str, Any] = {"node_mtbf_s": 900, "node_mttr_s": 50, "checkpoint_every_s": 10, "seed": 4}
    story = story_of(jobs((0, 1000, 4)), 0, "1x4", "fifo", **how)
    assert [(run.ending, run.stopped_for) for run in story.runs] == [("failed", None), ("completed", None)]
    assert any("was ended by a failing node" in sentence for sentence in sentences(story))


def test_rows_of_the_workload_are_named_even_if_others_were_left_out() -> None:
    workload = jobs((0, 1, 9), (0, 100, 8), (10, 5, 8), (11, 40, 4), (12, 1, 8))
    stopped = story_of(workload, 1, "1x8", "srtf", min_run_s=0, oversize="drop")
    assert (stopped.job, stopped.runs[0].stopped_for) == (JobName(1), JobName(2))
    behind = story_of(jobs((0, 1, 9), (0, 100, 5), (1, 10, 8), (2, 5, 3)), 3, "1x8", "fifo", oversize="drop")
    assert waits(behind)[0] == (2.0, 100.0, "behind-head", 2)
    with pytest.raises(InputError, match="row 0 can never run on cluster 1x8"):
        story_of(workload, 0, "1x8", "srtf", oversize="drop")


def test_time_asleep_is_no_wait_in_the_queue() -> None:
    story = story_of(jobs((0, 10, 4), (100, 10, 4)), 1, "1x4", "fifo", sleep_after_s=10, wake_s=30)
    assert (story.waits, story.start_s) == ([], 130.0)


def test_what_was_free_before_the_first_start_is_told() -> None:
    """Stopped for job 1, it later starts beside job 2."""
    workload = jobs((0, 100, 4), (10, 5, 8), (12, 30, 4), (13, 20, 4))
    story = story_of(workload, 0, "1x8", "srtf+greedy", min_run_s=0)
    assert [run.begin_s for run in story.runs] == [0.0, 38.5]
    assert story.free_before == [(0, 8)]


@pytest.mark.parametrize(("seed", "job"), [(19, 7), (120, 4), (122, 1)])
def test_stops_are_named_rightly_after_a_failure_during_a_stop(seed: int, job: int) -> None:
    case = random_failures(seed)
    inputs = (workload_of(case), cluster_of(case), policy_of(case), config_of(case))
    story = explain_job(*inputs, f"row:{inputs[0].frame['row'][job]}")
    core = prepare(*inputs)
    simulator = _core.CheckedSimulator(core.cluster, core.jobs, core.settings, core.past)
    stopped_for: dict[float, int] = {}
    while simulator.advance():
        if len(simulator.waiting):
            snapshot = simulator.snapshot()
            decision = _core.decide(snapshot, inputs[2].compile())
            for start, stops in decision.stops:
                if job in stops:
                    stopped_for[snapshot.now_s] = start
            simulator.apply(decision)
    stops = [run for run in story.runs if run.ending == "stopped"]
    expected = [name_of(inputs[0], stopped_for[run.stop_s]) for run in stops]
    assert [run.stopped_for for run in stops] == expected


@pytest.mark.parametrize(
    "policy", ["fifo", "sjf+easy", "fifo+conservative", "wspt+express:600:0.2", "random+greedy"]
)
def test_waits_cover_the_time_in_the_queue_without_a_gap(policy: str) -> None:
    workload = synthesize(SynthConfig(jobs=60, cluster_gpus=16, load=2.0, seed=2))
    result = simulate(workload, "2x8", policy, SimulationConfig(estimates="exact"))
    start_s = result.schedule.start_us / 1e6
    for job in range(0, 60, 3):
        story = story_of(workload, job, "2x8", policy)
        assert (story.start_s, story.runs[0].nodes) == (start_s[job], story.runs[-1].nodes)
        edges = [story.submit_s, *(span.to_s for span in story.waits)]
        assert [span.from_s for span in story.waits] == edges[:-1]
        assert math.isclose(edges[-1], story.start_s)


BUSY = synthesize(SynthConfig(jobs=400, cluster_gpus=16, load=1.1, seed=5, overestimation=3.0))


@pytest.mark.parametrize("policy", ["fifo+easy", "sjf+greedy", "random+easy", "wspt+easy+express:600:0.2"])
def test_a_replay_of_the_schedule_says_what_deciding_again_says(policy: str) -> None:
    spec, cluster = parse_policy(policy), parse_cluster("2x8")
    config = SimulationConfig(estimates="requested")
    result = simulate(BUSY, cluster, spec, config)
    inputs = prepare(BUSY, cluster, spec, config)
    past = watch.Past(inputs, microseconds(BUSY.frame["submit_s"]), result.schedule)
    for entry in range(0, 400, 40):
        replayed = watch._replayed(past, spec, entry)
        again = watch._decided_again(past, spec, entry, None)
        assert replayed is not None
        assert str(replayed) == str(again), "texts, because nan is not nan"


@pytest.mark.parametrize("policy", ["fifo+conservative", "sjf+conservative", "drf+easy", "qssf+greedy"])
def test_decisions_that_were_kept_say_what_a_replay_says(policy: str) -> None:
    spec, cluster = parse_policy(policy), parse_cluster("2x8")
    config = SimulationConfig(estimates="requested")
    inputs = prepare(BUSY, cluster, spec, config)
    result = simulate(BUSY, cluster, spec, config)
    past = watch.Past(inputs, microseconds(BUSY.frame["submit_s"]), result.schedule)
    for entry in range(0, 400, 40):
        run = watch.run_until_done(inputs, spec, entry)
        replayed = watch._replayed(past, spec, entry)
        assert (replayed is None) == run.started_as_planned
        if replayed is not None:
            assert str(watch._carried_out_again(replace(past, run=run), spec, entry)) == str(replayed)


@pytest.mark.parametrize("policy", ["fifo+conservative", "srtf+greedy", "tiresias", "gittins", "drf+easy"])
def test_jobs_that_come_after_its_end_do_not_change_the_story(policy: str) -> None:
    for job in range(0, 400, 80):
        whole = story_of(BUSY, job, "2x8", policy)
        came = BUSY.frame.filter(BUSY.frame["submit_s"] <= whole.end_s)
        assert str(story_of(Workload(came, BUSY.metadata), job, "2x8", policy)) == str(whole)


@pytest.mark.parametrize("policy", ["sjf+easy", "fifo+greedy"])
def test_later_jobs_do_not_change_the_story(policy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = [story_of(BUSY, job, "2x8", policy) for job in range(0, 400, 80)]
    sizes = []

    def counted(workload: Workload, *arguments: Any, **options: Any) -> Any:
        sizes.append(len(workload))
        return simulate(workload, *arguments, **options)

    monkeypatch.setattr("gpuyard.simulation.explain.FIRST_LOOK_S", 600.0)
    monkeypatch.setattr("gpuyard.simulation.explain.simulate", counted)
    cut = [story_of(BUSY, job, "2x8", policy) for job in range(0, 400, 80)]
    assert sentences(cut[0]) == sentences(whole[0])
    assert [str(one) for one in cut] == [str(one) for one in whole]
    assert min(sizes) < 200


def test_long_waits_are_asked_about_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    result = simulate(BUSY, "2x8", "sjf+easy", SimulationConfig(estimates="exact"))
    waited = result.schedule.start_us / 1e6 - BUSY.frame["submit_s"].to_numpy()
    job = int(waited.argmax())
    whole = story_of(BUSY, job, "2x8", "sjf+easy")
    monkeypatch.setattr(watch, "MOST_ASKED", 20)
    story = story_of(BUSY, job, "2x8", "sjf+easy")
    assert (whole.every, story.every > 1, len(story.waits) <= 20) == (1, True, True)
    assert sum(span.to_s - span.from_s for span in story.waits) == pytest.approx(waited[job])
    assert story.cause.overtakers == len(story.overtakers)


def test_the_cause_comes_first_and_the_table_is_short() -> None:
    large = jobs((0, 100, 8), (1, 100, 8), *((2 + k, 10, 1 + k % 4) for k in range(200)))
    story = story_of(large, 1, "1x8", "sjf+greedy")
    first, second, third, *_ = sentences(story)
    assert first.startswith("Row 1 asked for 8 GPUs at 1.0 s and started")
    assert "200 later jobs overtook it, because sjf ranks them before it (shortest estimated" in second
    assert "of the GPU time in use meanwhile" in second
    assert third.startswith("For ")
    shown = periods(story)
    assert len(shown) <= 10
    assert (shown[0].from_s, shown[-1].to_s) == (story.waits[0].from_s, story.waits[-1].to_s)
    assert all(one.reason != other.reason for one, other in pairwise(shown))


def test_jobs_before_it_and_jobs_that_ran_already_are_causes_too() -> None:
    running = sentences(story_of(jobs((0, 100, 8), (1, 10, 8)), 1, "1x8", "fifo"))
    assert running[1] == "It waited 1 min 39 s: jobs that ran already when it came held the GPUs."
    queued = sentences(story_of(jobs((0, 10, 8), (1, 100, 8), (2, 10, 8)), 2, "1x8", "fifo"))
    assert "1 job that came before it went first" in queued[1]
    alone = sentences(story_of(jobs((0, 100, 5), (2, 500, 3)), 1, "1x8", "fifo+express:1:1"))
    assert "the express lane did not admit it" in alone[1]


def test_moments_are_dates_where_the_log_has_a_clock() -> None:
    dated = make_workload(GAP.frame, epoch_s=1482356580.0)  # 2016-12-21 21:43
    lines = sentences(story_of(dated, 2, "1x8", "fifo+easy"))
    assert "asked for 3 GPUs at 2016-12-21 21:43 and started" in lines[0]
    assert lines[-1] == "Dates are on the log's clock, taken as UTC."


# --- refusals and the command line

EXACT = ("--estimates", "exact")


@pytest.mark.parametrize("job", [-1, 3, 10**9])
def test_a_row_that_is_not_there_is_refused(job: int) -> None:
    with pytest.raises(InputError, match=f"there is no job {job}; workload .* has rows 0 to 2"):
        story_of(GAP, job, "1x8", "fifo")


def test_the_optimiser_is_not_explained() -> None:
    with pytest.raises(InputError, match=r"fifo\+strict/milp is not native.*use tier"):
        story_of(GAP, 0, "1x8", "fifo/milp")


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a command line where jobs.csv has three jobs: exit code, standard output, standard error."""
    monkeypatch.setenv("COLUMNS", "140")
    monkeypatch.chdir(tmp_path)
    rows = ["submit_s,duration_s,gpus", "0,100,5", "1,10,8", "2,500,3"]
    (tmp_path / "jobs.csv").write_text("\n".join(rows) + "\n")
    return runner(capfd, "explain")


def test_the_command_prints_the_story_and_the_waits(run: Run) -> None:
    code, out, err = run("jobs.csv", 2, "--cluster", "1x8", "--policy", "fifo+easy", *EXACT)
    assert (code, err) == (0, "")
    assert "Row 2 asked for 3 GPUs at 2.0 s and started 1 min 48 s later" in out
    assert REASONS["would-delay-head"] in out
    assert "would delay row 1" in " ".join(out.split())


def test_the_command_gives_the_story_as_json(run: Run) -> None:
    code, out, err = run("jobs.csv", 2, "--cluster", "1x8", "--policy", "fifo+easy", *EXACT, "--json")
    assert (code, err) == (0, "")
    document = json.loads(out)
    assert (document["job"]["row"], document["policy"], document["start_s"]) == (
        2,
        "fifo+easy/consolidate",
        110.0,
    )
    assert document["waits"][0]["reason"] == "would-delay-head"
    assert document["waits"][0]["head"] == {"row": 1, "source_id": ""}
    assert document["runs"] == [
        {"begin_s": 110.0, "stop_s": 610.0, "ending": "completed", "nodes": [[0, 3]], "stopped_for": None}
    ]
    assert set(document) == set(JobStory.__dataclass_fields__)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["jobs.csv", 3, "--cluster", "1x8"], "there is no job 3"),
        (["jobs.csv", 0], "--cluster is missing"),
        (["jobs.csv", "x", "--cluster", "1x8"], "x"),
        (["jobs.csv", 0, "--cluster", "1x8", "--policy", "fifo/milp"], "cannot be explained"),
        (["jobs.csv", 0, "--cluster", "1x8", "--policy", "fifi"], "did you mean 'fifo'"),
        (["jobs.csv", 0, "--cluster", "1x4"], "can never run"),
        (["none.csv", 0, "--cluster", "1x8"], "no such file"),
    ],
)
def test_the_command_refuses_what_it_cannot_explain(run: Run, arguments: list[object], words: str) -> None:
    code, out, err = run(*arguments)
    assert (code, out) == (cli.BAD_INPUT, "")
    assert err.count("\n") == 1
    assert words in err
