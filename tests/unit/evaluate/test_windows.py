"""Policies on windows: which windows, against whom, and what is refused."""

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import gpuyard as gy
from gpuyard.config import SimulationConfig
from gpuyard.errors import InputError
from gpuyard.evaluate import Comparison, EvaluationConfig, compare, evaluate_draws, evaluate_windows
from gpuyard.evaluate.inputs import few_windows
from gpuyard.policies.family import fixed_heuristics, slower_heuristics
from gpuyard.policies.grammar import parse_policy
from gpuyard.simulation.window_set import WindowSet
from gpuyard.simulation.windows import cut_windows, disjoint_equivalent, overlapping
from gpuyard.workload import SynthConfig, make_workload
from gpuyard.workload.shaping.slices import split_by_time, window
from support.evaluation_cases import CLUSTER, MIX, like_its_base, some_jobs, with_few_heuristics, written

SMALL = {"windows": 6, "jobs_per_window": 40, "choosing_windows": 4}
COLD = {**SMALL, "cold": True, "whole": False}
EXACT = SimulationConfig(estimates="exact")
PINNED = [
    1.7806190707319538,
    1.1021682124157874,
    1.0,
    1.0311550629380128,
    1.140734382544311,
    1.9000450589731153,
]
"""Mean bounded slowdown of sjf+easy."""


@pytest.fixture(scope="module")
def found() -> Comparison:
    policies = ["sjf+easy", "power:0.5+easy+express:600:0.1"]
    return compare(policies, some_jobs(), CLUSTER, EXACT, all_heuristics=True, **COLD)


def test_windows_are_evenly_spaced_in_the_part_and_the_same_for_all(found: Comparison) -> None:
    parts = split_by_time(some_jobs())
    begin = len(parts.train) + len(parts.validation)
    rows = found.setting.windows
    assert (rows[0], rows[-1]) == (begin, 560)
    assert np.ptp(np.diff(rows)) <= 1
    by_policy = found.windows.group_by("policy", maintain_order=True).agg(pl.col("window"))
    assert all(windows == list(rows) for windows in by_policy["window"].to_list())


def test_a_cold_window_is_simulated_from_an_empty_cluster_with_every_metric(found: Comparison) -> None:
    row = found.setting.windows[2]
    result = gy.simulate(window(some_jobs(), row, 40), CLUSTER, "sjf+easy", EXACT)
    mine = (
        found.windows.filter(policy="sjf+easy/consolidate", window=row)
        .drop("policy", "window")
        .row(0, named=True)
    )
    assert mine == {name: None if value is None else float(value) for name, value in result.metrics().items()}


def test_figures_of_cold_windows_are_those_of_before(found: Comparison) -> None:
    """As gpuyard 0.2 gave them, when every window began with an empty cluster."""
    before = compare(["sjf+easy"], some_jobs(), CLUSTER, EXACT, current="fifo+easy", **COLD)
    assert before.setting.windows == (487, 502, 516, 531, 545, 560)
    assert before.values("sjf+easy").tolist() == pytest.approx(PINNED)
    assert before.values("sjf+easy").tolist() == found.values("sjf+easy").tolist()


def test_the_rival_is_the_best_on_earlier_windows_not_on_these(found: Comparison) -> None:
    cluster = gy.parse_cluster(CLUSTER)
    family = fixed_heuristics(cluster, EXACT, "consolidate")
    orders = list(dict.fromkeys(spec.order for spec in family))
    family += slower_heuristics(orders, some_jobs(), cluster, EXACT, "consolidate")
    cut = [
        one
        for part, count in (("train", 3), ("validation", 1))
        for one in cut_windows(some_jobs(), cluster, EXACT, part, count=count, jobs=40)
    ]
    figures = WindowSet(cut, cluster, EXACT).run(family)
    levels = [float(np.log(one["mean_bounded_slowdown"]).mean()) for one in figures]
    assert found.rival == family[int(np.argmin(levels))].name
    assert (found.reference, found.chosen_on) == ("fifo+easy/consolidate", "given")
    here = WindowSet(cut_windows(some_jobs(), cluster, EXACT, "test", count=6, jobs=40), cluster, EXACT)
    levels = [float(np.log(one["mean_bounded_slowdown"]).mean()) for one in here.run(family)]
    assert found.hindsight == family[int(np.argmin(levels))].name
    for name, role in ((found.rival, "rival"), (found.hindsight, "hindsight")):
        assert found.policy(name).is_shown
        assert found.policy(name).role in (role, "rival")


def test_heuristics_that_preempt_have_one_row_apart(found: Comparison) -> None:
    (one,) = [entry for entry in found.shown if entry.role == "preempting"]
    assert parse_policy(one.name).preempts
    assert not any(parse_policy(name).preempts for name in (found.rival, found.hindsight) if name)


def test_nothing_is_added_that_was_not_asked_for() -> None:
    few = compare(["sjf+easy"], some_jobs(), CLUSTER, EXACT, **COLD)
    assert [(entry.label, entry.role) for entry in few.policies] == [
        ("fifo+easy", "reference"),
        ("sjf+easy", "given"),
    ]
    assert (few.rival, few.hindsight) == (None, None)


def test_the_family_of_heuristics_is_there_without_rows_of_its_own_in_tables(found: Comparison) -> None:
    family = [entry for entry in found.policies if not entry.is_shown]
    assert len(family) > 40
    assert {entry.name for entry in family}.isdisjoint(found.schedules)
    assert found.knows(family[0].name, "max_wait_s")
    assert not found.knows(family[0].name, "gpu_utilization")
    assert [entry.role for entry in found.shown].count("given") >= 1


def test_jobs_classes_and_schedules_tell_the_same_story(found: Comparison) -> None:
    name, first = "sjf+easy/consolidate", found.setting.windows[0]
    assert found.jobs is not None
    jobs = found.jobs.filter(policy=name, window=first)
    wait = (jobs["start_s"] - jobs["submit_s"]).mean()
    assert wait == pytest.approx(found.values(name, "mean_wait_s")[0])
    assert jobs["row"].to_list() == list(range(first, first + 40))
    classes = found.classes.filter(policy=name, window=first, by="gpus")
    assert classes["jobs"].sum() == 40
    assert (classes["jobs"] * classes["mean_wait_s"]).sum() / 40 == pytest.approx(wait)
    assert found.schedules[name]["start_s"].to_list() == jobs["start_s"].to_list()
    assert {"nodes", "node_gpus"} <= set(found.schedules[name].columns)
    assert "priority" not in found.classes["by"]  # all have the same


@pytest.mark.parametrize("settings", [SMALL, {**COLD, "all_heuristics": True, "windows": 5}])
def test_the_same_call_gives_the_same_numbers_on_any_number_of_threads(settings: dict[str, Any]) -> None:
    both = [compare(["saf"], some_jobs(), CLUSTER, **settings, threads=threads) for threads in (1, 3)]
    assert both[0].windows.equals(both[1].windows)
    assert both[0].setting == both[1].setting
    assert both[0].difference("saf") == both[1].difference("saf")


def test_blocks_are_as_long_as_windows_overlap() -> None:
    assert overlapping([0, 100, 200], 100) == 1
    assert overlapping([0, 100, 200], 101) == 2
    assert overlapping([0, 31, 62], 1024) == 34
    assert overlapping([7], 1024) == 1
    assert disjoint_equivalent([0, 31, 62], 1000) == 1.062
    assert disjoint_equivalent([0, 5000, 10_000], 1000) == 3.0
    few = compare(["saf"], some_jobs(), CLUSTER, windows=30, jobs_per_window=60, current="sjf", cold=True)
    assert few.setting.block == overlapping(few.setting.windows, 60) > 1
    assert few.setting.disjoint == pytest.approx((few.setting.windows[-1] - few.setting.windows[0] + 60) / 60)


def test_a_network_that_acts_like_its_base_ties_with_it_exactly(tmp_path: Path) -> None:
    model = written(tmp_path, like_its_base(base_policy="sjf+easy"))
    found = compare([model], some_jobs(), CLUSTER, current="sjf+easy", **SMALL)
    difference = found.difference(model)
    assert (difference.ratio, difference.low, difference.high, difference.verdict) == (0.0, 0.0, 0.0, "tie")
    entry = found.policy("learned")
    assert (entry.kind, entry.source, entry.name) == ("learned", model, model)
    assert found.jobs is not None
    assert found.jobs.filter(policy=model)["start_s"].to_list() == (
        found.jobs.filter(policy="sjf+easy/consolidate")["start_s"].to_list()
    )


def test_predictions_begin_with_the_jobs_before_a_window(tmp_path: Path) -> None:
    jobs = some_jobs(user_habits=0.9)
    config = SimulationConfig(estimates="history")
    model = written(tmp_path, like_its_base(base_policy="sjf+easy", workload=jobs, estimates="history"))
    found = compare([model], jobs, CLUSTER, config, current="sjf+easy", **COLD)
    assert found.difference(model).ratio == 0.0
    mine, untold = found.values("sjf+easy", "mean_wait_s"), []
    for row, wait in zip(found.setting.windows, mine, strict=True):
        begin = jobs.frame["submit_s"][row]
        frame = jobs.frame[:row].filter(pl.col("submit_s") + pl.col("duration_s") <= begin)
        part, past = window(jobs, row, 40), make_workload(frame)
        told = gy.simulate(part, CLUSTER, "sjf+easy", config, history=past)
        assert wait == told.metrics()["mean_wait_s"]
        untold.append(gy.simulate(part, CLUSTER, "sjf+easy", config).metrics()["mean_wait_s"])
    assert mine.tolist() != untold
    cluster = gy.parse_cluster(CLUSTER)
    windows = WindowSet(cut_windows(jobs, cluster, config, "test", count=6, jobs=40), cluster, config)
    assert windows.run([parse_policy("sjf+easy")])[0]["mean_wait_s"] == pytest.approx(mine, abs=1e-9)


def test_draws_are_new_jobs_independent_of_each_other() -> None:
    generator = SynthConfig(cluster_gpus=16, load=1.5, gang_mix=MIX)
    config = EvaluationConfig(windows=5, jobs_per_window=30, choosing_windows=3, cold=True)
    found = evaluate_draws(generator, gy.parse_cluster(CLUSTER), ["saf"], config, EXACT)
    assert (found.setting.kind, found.setting.block, found.setting.jobs_per_window) == ("draws", 1, 30)
    seeds = found.setting.windows
    again = gy.synthesize(generator.model_copy(update={"seed": seeds[1], "jobs": 30}))
    result = gy.simulate(again, CLUSTER, "saf", EXACT)
    assert found.values("saf")[1] == pytest.approx(result.metrics()["mean_bounded_slowdown"])
    assert evaluate_draws(generator, gy.parse_cluster(CLUSTER), ["saf"], config, EXACT).windows.equals(
        found.windows
    )


def test_the_whole_part_as_one_window_tells_no_interval() -> None:
    found = compare(["saf"], some_jobs(), CLUSTER, jobs_per_window=None, part="all", current="sjf")
    assert (found.setting.kind, found.setting.jobs_per_window) == ("whole", 600)
    assert np.isnan(found.difference("saf").low)
    assert "tells no interval" in found.summary()


def test_a_single_name_is_one_policy() -> None:
    found = compare("saf", some_jobs(), CLUSTER, current="sjf", **SMALL)
    assert [entry.label for entry in found.shown] == ["sjf+strict", "saf+strict"]


def test_a_comparison_shows_itself_in_a_line(found: Comparison) -> None:
    text = repr(found)
    reference, family = found.policy(found.reference or ""), len(found.policies) - len(found.shown)
    assert text.startswith("Comparison(fifo+easy, sjf+easy, power:0.5+easy+express:600:0.1, ")
    assert text.endswith(f" and {family} more; 6 windows; reference {reference.label})")


def test_few_windows_are_told_with_the_size_that_makes_them_eight() -> None:
    jobs = some_jobs(6000)
    there = len(split_by_time(jobs).test)
    told = few_windows(jobs, "test", there // 3)
    assert told.endswith(f"`jobs_per_window={there // 8}` would make it 8")
    assert not few_windows(jobs, "test", there // 5)
    assert not few_windows(jobs, "test", None)


def test_heuristics_can_be_chosen_by_any_metric_that_has_a_direction(monkeypatch: pytest.MonkeyPatch) -> None:
    with_few_heuristics(monkeypatch)
    found = compare(["saf"], some_jobs(), CLUSTER, windows=2, jobs_per_window=40, choosing_windows=1,
                    metric="gpu_utilization", all_heuristics=True)  # fmt: skip
    assert found.ranking()[0] == max((entry.name for entry in found.policies), key=found.mean)
    assert found.setting.lower_is_better is False


def test_placements_may_differ_if_that_is_asked() -> None:
    policies = ["wspt", "saf/spread", "saf/tier"]
    found = compare(policies, some_jobs(), CLUSTER, current="sjf/spread", any_placement=True, **SMALL)
    given = [entry for entry in found.policies if entry.role == "given"]
    names = ["wspt+strict/spread", "saf+strict/spread", "saf+strict/tier"]  # wspt is as the first
    assert [entry.name for entry in given] == names
    assert "All policies place jobs by" not in found.summary()
    assert found.reference == "sjf+strict/spread"
    assert len({entry.label for entry in found.shown}) == len(found.shown)


def test_backfills_that_cannot_run_are_left_out() -> None:
    cluster = gy.parse_cluster(CLUSTER)
    told = slower_heuristics(["saf"], some_jobs(), cluster, EXACT, "consolidate")
    assert [spec.name for spec in told] == ["saf+conservative/consolidate"]  # an express lane cannot
    unknown = SimulationConfig(estimates="none")
    assert not slower_heuristics(["lifo"], some_jobs(), cluster, unknown, "consolidate")


def test_heuristics_that_nobody_asked_for_and_that_cannot_run_are_left_out() -> None:
    settings = SimulationConfig(defragment=True)
    found = compare(["sjf+greedy"], some_jobs(), CLUSTER, settings, all_heuristics=True, **COLD)
    assert found.reference == "fifo+greedy/consolidate"  # fifo+easy cannot run either
    assert {entry.name.split("+")[1].split("/")[0] for entry in found.policies} <= {"strict", "greedy"}


def test_placements_of_the_optimiser_are_compared_too() -> None:
    found = compare(
        ["sjf+strict"],
        some_jobs(),
        CLUSTER,
        placement="milp",
        windows=2,
        jobs_per_window=20,
        choosing_windows=1,
        whole=False,
    )
    assert found.reference is not None
    assert found.reference.endswith("+strict/milp")


def test_names_without_a_placement_take_that_of_the_others(tmp_path: Path) -> None:
    model = written(tmp_path, like_its_base(base_policy="sjf+easy/spread"))
    found = compare([model, "saf+strict"], some_jobs(), CLUSTER, current="sjf+easy", **SMALL)
    assert {entry.placement for entry in found.policies} == {"spread"}
    assert "All policies place jobs by spread." in found.summary()


def test_a_policy_given_twice_is_compared_once() -> None:
    found = compare(["saf", "saf+strict/consolidate"], some_jobs(), CLUSTER, current="sjf", **SMALL)
    assert [entry.name for entry in found.policies if entry.role == "given"] == ["saf+strict/consolidate"]
    assert "All policies place jobs by" not in found.summary()


def test_jobs_without_users_and_groups_have_none_in_the_table() -> None:
    frame = some_jobs().frame.select("submit_s", "duration_s", "gpus")
    found = compare(["saf"], make_workload(frame), CLUSTER, current="sjf", **SMALL)
    assert found.jobs is not None
    assert found.jobs["user"].null_count() == found.jobs["group"].null_count() == len(found.jobs)
    assert set(found.classes["by"]) == {"gpus", "runtime"}


def test_many_jobs_are_kept_of_some_windows_only(monkeypatch: pytest.MonkeyPatch) -> None:
    from gpuyard.evaluate import tables as frames

    monkeypatch.setattr(frames, "MOST_JOB_ROWS", 300)
    found = compare(["saf"], some_jobs(), CLUSTER, current="sjf", **SMALL)
    assert found.jobs is not None
    assert found.jobs["window"].n_unique() == 300 // (2 * 40)
    assert found.setting.windows[0] in found.jobs["window"]
    none = compare(["saf"], some_jobs(), CLUSTER, current="sjf", keep_jobs=False, **SMALL)
    assert none.jobs is None


@pytest.mark.parametrize(
    ("policies", "settings", "message"),
    [
        (["sjff"], {}, "unknown order"),
        (["sjf/spread", "saf/consolidate"], {}, "same placement"),
        (["sjf/spread"], {"placement": "consolidate"}, "same placement"),
        (
            ["sjf", "sjf/spread"],
            {},
            r"sjf and sjf/spread would both be sjf\+strict/spread.*`any_placement=True`",
        ),
        (
            ["sjf", "sjf/spread"],
            {"any_placement": True},
            r"\(sjf\+strict/consolidate and sjf\+strict",
        ),
        (["sjf"], {"metric": "mean_waits"}, "unknown metric"),
        (["sjf"], {"metric": "backfilled_jobs"}, "neither more nor less"),
        (["sjf"], {"metric": "energy_kwh"}, r"energy_kwh is not known here; .* `cold=True` if a stretch"),
        (["sjf"], {"metric": "energy_kwh", **COLD}, "energy_kwh is not known here; compare by another$"),
        (["sjf"], {"metric": "energy_kwh", "all_heuristics": True}, "no heuristic is best by it"),
        (["sjf"], {"jobs_per_window": 400}, "the test part of .* has"),
        (["sjf"], {"windos": 4}, "unknown key windos"),
        (["sjf"], {"windows": 0}, "`windows=0`"),
        (["sjf"], {"part": "tests"}, "`part=tests`"),
        (["las+easy"], {}, "preempts"),
    ],
)
def test_what_cannot_be_compared_is_refused(
    policies: list[str], settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        compare(policies, some_jobs(), CLUSTER, **{**SMALL, **settings})


@pytest.mark.parametrize(
    ("trained", "compared", "message"),
    [
        ({"estimates": "noisy"}, {}, "estimates noisy, but runs with history"),
        ({}, {"estimates": "none"}, "estimates history, but runs with none"),
        (
            {"simulation": SimulationConfig(estimates="noisy", noise_sigma=0.5)},
            {"estimates": "noisy"},
            "noise_sigma 0.5, but runs with 1.0",
        ),
        ({}, {"locality_penalty": 0.2}, "locality_penalty"),
        ({"cluster": "8x2"}, {}, "trained on cluster 8x2"),
    ],
)
def test_models_that_knew_other_things_are_refused_unless_that_is_asked_for(
    tmp_path: Path, trained: dict[str, Any], compared: dict[str, Any], message: str
) -> None:
    jobs = some_jobs(gang_mix=((1, 5), (2, 3)))
    model = written(
        tmp_path, like_its_base(base_policy="fifo+greedy", workload=jobs, tokens="classes", **trained)
    )
    config = SimulationConfig(**compared)
    with pytest.raises(InputError, match=message):
        compare([model], jobs, CLUSTER, config, current="fifo", **SMALL)
    found = compare([model], jobs, CLUSTER, config, current="fifo", transfer=True, **SMALL)
    assert message.split(" ")[0] in found.policy(model).note


def test_models_that_choose_hosts_are_sent_to_their_environment(tmp_path: Path) -> None:
    jobs = some_jobs(gang_mix=((1, 5), (2, 3)))
    model = written(tmp_path, like_its_base("select-host", "host-attention", workload=jobs, window=1))
    with pytest.raises(InputError, match="`episodes`"):
        compare([model], jobs, CLUSTER, current="fifo", **SMALL)


def test_jobs_that_can_never_run_are_left_out_of_windows_when_asked() -> None:
    jobs = some_jobs()
    frame = jobs.frame.with_columns(
        gpus=pl.when(pl.col("row") % 50 == 7).then(64).otherwise("gpus").cast(pl.Int32)
    )
    large = make_workload(frame)
    with pytest.raises(InputError, match="can never run"):
        compare(["saf"], large, CLUSTER, current="sjf", **SMALL)
    config = SimulationConfig(oversize="drop")
    found = evaluate_windows(
        large, gy.parse_cluster(CLUSTER), ["saf"], EvaluationConfig(current="sjf", **SMALL), config
    )
    assert found.jobs is not None
    assert found.jobs["gpus"].max() == 4
    assert (found.jobs.group_by("policy", "window").len()["len"] == 40).all()
    assert found.setting.left_out == 12
    assert "can never run on the cluster: 12 jobs." in found.summary()


def test_jobs_that_can_never_run_are_left_out_of_draws_when_asked_and_counted() -> None:
    generator = SynthConfig(cluster_gpus=64, load=0.5, gang_mix=(*MIX, (64, 1)))
    settings = {"windows": 3, "jobs_per_window": 60, "choosing_windows": 2}
    with pytest.raises(InputError, match="can never run"):
        compare(["saf"], generator, CLUSTER, **settings)
    found = compare(["saf"], generator, CLUSTER, SimulationConfig(oversize="drop"), **settings)
    assert found.jobs is not None
    assert found.jobs["gpus"].max() == 4
    own = found.jobs.filter(policy="saf+strict/consolidate")
    assert 0 < found.setting.left_out == 3 * 60 - len(own)
    assert found.setting.jobs_per_window == 60
    assert f"never run on the cluster: {found.setting.left_out} jobs." in found.summary()


def test_draws_can_be_like_a_part_of_the_jobs() -> None:
    found = compare(["saf"], some_jobs(), CLUSTER, draws=True, part="train", current="sjf", **SMALL)
    assert (found.setting.kind, found.setting.part) == ("draws", "train")
    assert found.setting.workload.startswith("like-")
    with pytest.raises(InputError, match="have no parts"):
        compare(["saf"], SynthConfig(cluster_gpus=16), CLUSTER, part="train", current="sjf", **SMALL)


def test_one_window_is_not_called_the_whole_part() -> None:
    found = compare(["saf"], some_jobs(), CLUSTER, windows=1, jobs_per_window=40, current="sjf")
    assert found.setting.kind == "windows"
    assert "on 1 window of 40 jobs of the test part" in found.summary()
    assert "tells no interval" in found.summary()


def test_a_comparison_is_among_the_public_names() -> None:
    assert gy.compare is compare
    assert "compare" in gy.__all__


def test_learned_policies_take_a_history_unless_gpus_are_shared(tmp_path: Path) -> None:
    jobs = some_jobs(user_habits=0.9)
    config = SimulationConfig(estimates="history")
    model = written(tmp_path, like_its_base(base_policy="sjf+easy", workload=jobs, estimates="history"))
    past, part = window(jobs, 0, 300), window(jobs, 300, 60)
    learned, rule = (
        gy.simulate(part, CLUSTER, policy, config, history=past) for policy in (model, "sjf+easy")
    )
    assert learned.schedule.start_us.tolist() == rule.schedule.start_us.tolist()
    assert learned.schedule.node.tolist() == rule.schedule.node.tolist()
    shared = pl.when(pl.col("gpus") == 1).then(500).otherwise("gpu_milli").cast(pl.Int32)
    halves = make_workload(part.frame.with_columns(gpu_milli=shared))
    with pytest.raises(InputError, match="share GPUs"):
        gy.simulate(halves, CLUSTER, model, config, history=past)


# --- The whole part in one go ---


def test_the_whole_part_is_replayed_in_one_go_and_windows_are_cut_from_it() -> None:
    found = compare(["sjf+easy"], some_jobs(), CLUSTER, EXACT, current="fifo", **SMALL)
    assert found.whole is not None
    parts = split_by_time(some_jobs())
    begin, before = len(parts.train) + len(parts.validation), found.setting.margins[0]
    first = max(begin - before, 0)
    around = window(some_jobs(), first, 600 - first)
    schedule = gy.simulate(around, CLUSTER, "sjf+easy", EXACT).schedule
    wait_s = (schedule.start_us - np.rint(around.frame["submit_s"].to_numpy() * 1e6)) / 1e6
    row = found.whole_rows()["sjf+easy/consolidate"]
    assert row["mean_wait_s"] == pytest.approx(wait_s[begin - first :].mean())
    assert row["max_wait_s"] == pytest.approx(wait_s[begin - first :].max())
    assert row["completed_jobs"] == 600 - begin
    apart = found.in_whole("sjf+easy", "mean_wait_s")
    assert apart is not None
    today = found.whole_rows()["fifo+strict/consolidate"]["mean_wait_s"]
    assert apart.ratio == pytest.approx(row["mean_wait_s"] / today - 1.0)
    cut = found.whole.windows.filter(policy="sjf+easy/consolidate")
    assert cut["window"].to_list() == list(found.setting.windows)
    for name, longest in zip(cut["window"], cut["max_wait_s"], strict=True):
        assert longest == pytest.approx(wait_s[name - first : name - first + 40].max())
    sizes = found.whole_classes("sjf+easy").filter(by="gpus")
    assert sizes["jobs"].sum() == 600 - begin
    assert sizes["max_wait_s"].max() == pytest.approx(row["max_wait_s"])


def test_without_a_whole_replay_there_is_none() -> None:
    found = compare(["sjf+easy"], some_jobs(), CLUSTER, EXACT, current="fifo", whole=False, **SMALL)
    assert (found.whole, found.in_whole("sjf+easy"), found.broken_limits("sjf+easy")) == (None, None, [])


@pytest.mark.parametrize(("shift_s", "reference"), [(0.0, "fifo+easy/consolidate"), (None, "recorded")])
def test_what_cannot_have_been_is_no_reference(shift_s: float | None, reference: str) -> None:
    frame = some_jobs(load=1.5).frame
    as_it_was = gy.simulate(some_jobs(load=1.5), CLUSTER, "fifo").schedule.start_us / 1e6
    starts = pl.Series("recorded_start_s", as_it_was) if shift_s is None else frame["submit_s"] + shift_s
    jobs = make_workload(frame.with_columns(starts.alias("recorded_start_s")))
    found = compare("sjf+easy", jobs, CLUSTER, EXACT, **SMALL)
    assert found.reference == reference
    noted = "stands for what runs today: " in found.policy(reference).note
    assert noted == (reference != "recorded")


def test_a_cluster_in_the_place_of_jobs_is_refused_with_the_order_of_arguments() -> None:
    with pytest.raises(InputError, match=r"'6x8' is a cluster, and no file; give policies, then jobs"):
        compare("jobs.parquet", "6x8", ["fifo"])  # type: ignore[arg-type]
