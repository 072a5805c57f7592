"""The search for a rule: its grid, its start, its limits, and that nothing about it is left to chance."""

from functools import cache
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from gpuyard import parse_cluster
from gpuyard.cluster.model import Cluster
from gpuyard.config import SimulationConfig
from gpuyard.env import SchedulingVectorEnv
from gpuyard.errors import InputError
from gpuyard.learn.algorithms.search import Search, fitting_window
from gpuyard.learn.config import read_config
from gpuyard.learn.rules.cma import RuleRunner
from gpuyard.learn.rules.config import SearchConfig
from gpuyard.learn.rules.grid import Objective, grid_policies, neighbours
from gpuyard.learn.rules.guard import Guard, ageing_bounds
from gpuyard.learn.rules.result import SearchResult
from gpuyard.learn.rules.rule import Rule, Units, rule_of, steps_of
from gpuyard.learn.rules.search import RuleSearch, SearchProgress, search
from gpuyard.metrics.catalogue import compute_metrics
from gpuyard.metrics.guards import BrokenLimit
from gpuyard.observation.config import EnvConfig
from gpuyard.policies.base import Policy
from gpuyard.policies.family import fixed_heuristics
from gpuyard.policies.grammar import PolicySpec, parse_policy
from gpuyard.simulation.run import simulate
from gpuyard.simulation.window_set import FIGURES, WindowSet
from gpuyard.workload import SynthConfig, Workload, synthesize
from gpuyard.workload.shaping.slices import window

TINY: dict[str, Any] = {
    "train_windows": 6,
    "validation_windows": 4,
    "jobs_per_window": 48,
    "exponents": (0.5, 1.0),
    "express_t0_s": (600.0,),
    "express_k": (0.1,),
    "first_windows": 2,
    "refinements": 1,
    "generations": 3,
    "population": 6,
    "windows_per_generation": 3,
    "check_every": 2,
    "rows": 32,
    "cold": True,
    "least_jobs": 20,
}
EXACT = SimulationConfig(estimates="exact")


@cache
def workload() -> Workload:
    """600 jobs that overload 4 nodes."""
    return synthesize(
        SynthConfig(jobs=600, cluster_gpus=16, load=1.3, gang_mix=((1, 5), (2, 3), (4, 2)), seed=4)
    )


@cache
def cluster() -> Cluster:
    return parse_cluster("4x4")


def tiny(**changes: Any) -> SearchConfig:
    return SearchConfig.model_validate(TINY | changes)


@cache
def found(seed: int = 0, threads: int | None = None) -> SearchResult:
    return search(workload(), cluster(), tiny(seed=seed, threads=threads), EXACT)


@cache
def grid_alone(**changes: Any) -> SearchResult:
    """A search without generations."""
    return search(workload(), cluster(), tiny(generations=0, **changes), EXACT)


def windows(part: Any = "train", count: int = 4) -> WindowSet:
    return WindowSet.of(workload(), cluster(), EXACT, part, count=count, jobs=48)


def environment(policy: str, **settings: Any) -> EnvConfig:
    given = {"window": 48, "jobs_per_episode": 48, "tokens": "classes", "lookahead": "off"} | settings
    given = {"warmup_jobs": 0, "cooldown_jobs": 0, "simulation": EXACT} | given
    return EnvConfig(base_policy=policy, **given)


# --- Windows


def test_figures_of_windows_are_those_of_plain_simulations() -> None:
    some = windows()
    figures = some.run([parse_policy("sjf+easy")])[0]
    for i, row in enumerate(some.rows):
        result = simulate(window(workload(), row, 48), cluster(), "sjf+easy", EXACT)
        metrics = compute_metrics(result.workload, result.cluster, result.schedule)
        for name in FIGURES:
            assert figures[name][i] == pytest.approx(metrics[name], rel=1e-12), name


def test_windows_lie_in_their_part_and_test_windows_are_the_last() -> None:
    parts = [windows(part).rows for part in ("train", "validation", "test")]
    assert parts[0][0] == 0
    assert parts[0][-1] + 48 <= parts[1][0]
    assert parts[1][-1] + 48 <= parts[2][0]
    assert parts[2][-1] + 48 == len(workload())


def test_windows_longer_than_their_part_are_refused_with_the_setting_to_change() -> None:
    with pytest.raises(InputError, match=r"windows of 5,000 jobs: the train part .*jobs_per_window"):
        search(workload(), cluster(), tiny(jobs_per_window=5000))


def test_jobs_that_can_never_run_are_left_out_of_windows_as_out_of_episodes() -> None:
    small, drop = parse_cluster("4x2"), SimulationConfig(oversize="drop", estimates="exact")
    some = WindowSet.of(workload(), small, drop, "validation", count=3, jobs=40)
    runner = RuleRunner(
        workload(), small, environment("sjf+easy", jobs_per_episode=40, simulation=drop), "validation", 1
    )
    ours, theirs = some.run([parse_policy("sjf+easy")])[0], runner.run_policy(some.rows)
    for name in FIGURES:
        np.testing.assert_allclose(ours[name], theirs[name], rtol=1e-12)


# --- The grid


def test_the_reference_is_chosen_among_orders_that_know_as_much_and_do_not_preempt() -> None:
    names = {spec.order for spec in fixed_heuristics(cluster(), SimulationConfig(), "consolidate")}
    assert {"fifo", "saf", "wspt", "f4", "multifactor"} <= names
    assert not names & {"srtf", "las", "gittins", "random", "power", "power-aware"}
    unknown = fixed_heuristics(cluster(), SimulationConfig(estimates="none"), "consolidate")
    assert not any(spec.uses_estimates for spec in unknown)


def test_the_grid_has_every_combination_once_and_always_one_without_express() -> None:
    policies = [spec.name for spec in grid_policies(tiny(), SimulationConfig())]
    assert len(policies) == len(set(policies)) == 2 * 2 * (1 + 1)
    assert "power:0.5+easy/consolidate" in policies
    assert "power:1+greedy+express:600:0.1/consolidate" in policies


def test_neighbours_move_one_number_at_a_time() -> None:
    policy = parse_policy("power:0.5+easy+express:600:0.1")
    near = neighbours(policy, 1.0)
    assert len(near) == 6
    for one in near:
        assert one.admission is not None
        assert policy.admission is not None
        moved = (
            one.order_parameter != 0.5,
            one.admission.t0_s != policy.admission.t0_s,
            one.admission.k != policy.admission.k,
        )
        assert sum(moved) == 1
        assert (one.backfill, one.placement) == (policy.backfill, policy.placement)


def test_exceeding_a_limit_is_charged_and_keeping_it_is_not() -> None:
    reference = {name: np.array([100.0, 300.0]) for name in FIGURES}
    objective = Objective(tiny(max_jct_increase=0.02, max_p99_wait_increase=0.5), reference)
    kept = reference | {"mean_jct_s": np.array([104.0, 304.0]), "p99_wait_s": np.array([150.0, 450.0])}
    assert objective.charge(kept) == pytest.approx(0.0, abs=1e-12)
    over = reference | {"mean_jct_s": np.array([120.0, 320.0]), "p99_wait_s": np.array([200.0, 600.0])}
    assert objective.charge(over) == pytest.approx(10 * (0.08 + 0.5))
    assert objective.loss(over) == pytest.approx(np.log([100, 300]).mean() + 10 * (0.08 + 0.5))
    some = {name: values[:1] for name, values in over.items()}
    assert objective.charge(some, [0]) == pytest.approx(10 * (0.18 + 0.5))


def test_limits_on_some_windows_are_judged_by_the_difference_from_a_known_rule() -> None:
    reference = {name: np.array([100.0, 300.0]) for name in FIGURES}
    objective = Objective(tiny(), reference)
    near = reference | {"mean_jct_s": np.array([130.0, 270.0])}  # no more than the reference, in all
    same = {name: values[:1] for name, values in near.items()}
    assert objective.charge(same, [0]) > 1.0
    assert objective.charge(same, [0], near) == 0.0
    worse = same | {"mean_jct_s": np.array([150.0])}
    assert objective.charge(worse, [0], near) == pytest.approx(10 * (0.1 - 0.02))


# --- The rule that CMA-ES starts from


@pytest.mark.parametrize(
    "policy",
    [
        "power:0.5+greedy+express:600:0.1",
        "power:1+easy+express:900:0.05",
        "power:2+easy",
        "power:1.5+strict",
        "power:0.25+strict+express:300:0.2",
    ],
)
def test_the_start_acts_like_the_policy(policy: str) -> None:
    some = windows(count=6)
    runner = RuleRunner(workload(), cluster(), environment(policy), "train", 1)
    rule = rule_of(parse_policy(policy), cluster().total_gpus, some_unknown=False)
    ours, theirs = runner.run([rule], some.rows)[0], some.run([parse_policy(policy)])[0]
    alike = np.isclose(ours["mean_jct_s"], theirs["mean_jct_s"], rtol=1e-12)
    assert alike.mean() >= 0.5
    np.testing.assert_allclose(
        ours["mean_bounded_slowdown"].mean(), theirs["mean_bounded_slowdown"].mean(), rtol=0.02
    )


@pytest.mark.parametrize("policy", ["fifo+greedy", "lifo+greedy", "smallest+greedy", "largest+strict"])
def test_without_estimates_the_start_acts_like_the_policy(policy: str) -> None:
    told = SimulationConfig(estimates="none")
    some = WindowSet.of(workload(), cluster(), told, "train", count=4, jobs=48)
    runner = RuleRunner(workload(), cluster(), environment(policy, simulation=told), "train", 1)
    rule = rule_of(parse_policy(policy), cluster().total_gpus, some_unknown=False)
    ours, theirs = runner.run([rule], some.rows)[0], some.run([parse_policy(policy)])[0]
    np.testing.assert_allclose(ours["mean_jct_s"], theirs["mean_jct_s"], rtol=1e-12)


def test_orders_that_are_not_linear_in_the_columns_are_refused() -> None:
    with pytest.raises(InputError, match="order wfp3 is not linear"):
        rule_of(parse_policy("wfp3"), 16, some_unknown=False)


def test_moving_by_nothing_changes_nothing_and_by_a_step_one_weight() -> None:
    start = rule_of(parse_policy("power:0.5+easy+express:600:0.1"), 16, some_unknown=False)
    steps = steps_of(Units.of(workload(), cluster()), told=True, some_unknown=False)
    still = start.moved(steps, np.zeros(steps.size))
    assert {name: value for name, value in still.score.items() if value} == {
        name: value for name, value in start.score.items() if value
    }
    one = np.zeros(steps.size)
    one[list(steps.score).index("wait")] = 0.5
    assert start.moved(steps, one).score["wait"] == pytest.approx(0.5 * steps.score["wait"])


def chosen_by_hand(rule: Rule, env: SchedulingVectorEnv, observation: Any) -> Any:
    """What docs/contract/networks.md says a rule does."""
    names, overall = env.model.parts["jobs"].names, env.model.parts["globals"].names
    tensors = rule.tensors(names, overall)
    jobs, state = observation["jobs"].astype(np.float64), observation["globals"].astype(np.float64)
    score = jobs @ tensors["score.weight"][0]
    gate = jobs @ tensors["gate_jobs.weight"][0] + tensors["gate_jobs.bias"][0]
    gate += (state @ tensors["gate_globals.weight"][0])[:, None]
    idle = state[:, overall.index("running")] == 0
    admitted = observation["mask"][:, :-1].astype(bool) & ((gate >= 0) | idle[:, None])
    best = np.where(admitted, score, -np.inf).argmax(axis=1)
    return np.where(admitted.any(axis=1), best, jobs.shape[1])


def test_native_runs_are_those_of_a_plain_rule_stepped_through_the_environment() -> None:
    policy = "power:0.7+easy+express:600:0.1"
    rule = rule_of(parse_policy(policy), 16, some_unknown=False)
    steps = steps_of(Units.of(workload(), cluster()), told=True, some_unknown=False)
    moves = np.random.default_rng(3).normal(0, 0.2, steps.size)
    rule = rule.moved(steps, moves)
    config = environment(policy, split="train")
    runner = RuleRunner(workload(), cluster(), config, "train", 1)
    rows = windows(count=4).rows
    native = runner.run([rule], rows)[0]
    settings = config.model_dump(exclude_unset=True)
    env = SchedulingVectorEnv(
        "select-job",
        4,
        workload=workload(),
        cluster=cluster(),
        autoreset_mode="DISABLED",
        **{name: value for name, value in settings.items() if value is not None},
    )
    observation, _ = env.reset(seed=0, options={"episode": list(rows)})
    ended: dict[int, float] = {}
    while len(ended) < 4:
        actions = chosen_by_hand(rule, env, observation)
        actions[list(ended)] = 48
        before = set(ended)
        observation, _, terminated, _, infos = step_unfinished(env, actions, before)
        for i in np.flatnonzero(terminated):
            if i not in before:
                ended[int(i)] = infos["episode_metrics"]["mean_bounded_slowdown"][i]
    np.testing.assert_allclose([ended[i] for i in range(4)], native["mean_bounded_slowdown"], rtol=1e-12)


def step_unfinished(env: SchedulingVectorEnv, actions: Any, finished: set[int]) -> Any:
    """Steps; environments that have finished begin anew and are not looked at."""
    if finished:
        mask = np.zeros(env.num_envs, dtype=np.bool_)
        mask[list(finished)] = True
        env.reset(options={"reset_mask": mask})
        legal = env.action_masks()
        for i in finished:
            actions[i] = int(np.flatnonzero(legal[i])[0])
    return env.step(actions)


# --- The whole


def test_a_search_is_the_same_again_whatever_the_threads() -> None:
    first, second = found(), search(workload(), cluster(), tiny(threads=1), EXACT)
    assert first.judged == second.judged
    assert (first.chosen, first.grid_policy, first.reference) == (
        second.chosen,
        second.grid_policy,
        second.reference,
    )
    assert first.grid == second.grid
    assert first.rule is not None
    assert second.rule is not None
    for name, tensor in first.rule.tensors.items():
        np.testing.assert_array_equal(tensor, second.rule.tensors[name])


def test_another_seed_finds_another_rule_but_the_same_grid() -> None:
    first, second = found(), found(seed=1)
    assert first.grid == second.grid
    assert first.rule is not None
    assert second.rule is not None
    assert any((t != second.rule.tensors[name]).any() for name, t in first.rule.tensors.items())


def test_random_numbers_of_the_process_are_left_alone() -> None:
    np.random.seed(7)
    expected = np.random.random()
    np.random.seed(7)
    search(workload(), cluster(), tiny(generations=1), EXACT)
    assert np.random.random() == expected


def test_what_the_grid_finds_keeps_the_limits_and_is_no_worse_than_the_reference() -> None:
    result = found()
    assert result.judged["grid"].broken == ()
    assert result.judged["grid"].train_loss < result.judged["current"].train_loss
    best = {name: loss for name, _, loss, _ in result.grid}
    assert best[result.unguarded.name] == pytest.approx(result.unguarded.train_loss)


def test_the_best_of_the_grid_breaks_limits_here_and_an_ageing_bound_keeps_them() -> None:
    result = grid_alone()
    assert result.unguarded.broken
    assert result.unguarded.broken[0].own > result.unguarded.broken[0].limit
    assert parse_policy(result.grid_policy).max_wait_s is not None


def test_no_ageing_bound_is_shorter_than_the_waits_of_a_jam() -> None:
    assert ageing_bounds((0.1, 0.2, 0.8), 36_000.0, 0.0) == [3_600.0, 7_200.0, 28_800.0]
    assert ageing_bounds((0.1, 0.2, 0.8), 36_000.0, 12_345.0) == [12_500.0, 28_800.0]
    assert ageing_bounds((0.1, 0.8), 36_000.0, 35_000.0) == [35_000.0]
    assert ageing_bounds((0.1, 0.8), 0.0, 0.0) == [], "nobody waits"


def test_search_proposes_no_bound_below_half_the_99th_percentile_of_todays_waits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tried: list[tuple[float, float]] = []
    broken = Guard.broken

    def watched(guard: Guard, policy: Policy) -> list[BrokenLimit]:
        if isinstance(policy, PolicySpec) and policy.max_wait_s is not None:
            tried.append((policy.max_wait_s, guard.p99_s))
        return broken(guard, policy)

    monkeypatch.setattr(Guard, "broken", watched)
    search(workload(), cluster(), tiny(generations=0), EXACT)
    assert tried
    assert all(bound_s >= 0.5 * p99_s > 0 for bound_s, p99_s in tried)


def test_without_limits_on_waits_the_best_of_the_grid_is_taken() -> None:
    loose = {"max_p99_increase": 1000, "max_longest_increase": 1000, "longest_factor": 1000, "guard_share": 1}
    result = search(workload(), cluster(), tiny(generations=0, **loose), EXACT)
    assert result.grid_policy == result.unguarded.name


def test_a_tighter_limit_never_gives_a_longer_mean_completion_time() -> None:
    results = [grid_alone(max_jct_increase=limit) for limit in (0.0, None)]
    assert results[0].judged["grid"].train["mean_jct_s"] <= results[1].judged["grid"].train["mean_jct_s"]
    assert results[1].judged["grid"].train_loss <= results[0].judged["grid"].train_loss


def test_limits_may_have_to_be_kept_on_each_part() -> None:
    reference = {name: np.array([10.0, 10.0, 1000.0, 1.0]) for name in FIGURES}
    own = {name: np.array([10.0, 10.0, 500.0, 2.0]) for name in FIGURES}
    together = Objective(tiny(max_jct_increase=0.0), reference)
    apart = Objective(tiny(max_jct_increase=0.0), reference, (range(3), range(3, 4)))
    assert together.charge(own) == 0.0
    assert apart.charge(own) == pytest.approx(apart.config.penalty)
    some = {name: values[[0, 3]] for name, values in own.items()}
    assert apart.charge(some, [0, 3]) == pytest.approx(apart.config.penalty)
    assert apart.charge({name: values[[0, 1]] for name, values in own.items()}, [0, 1]) == 0.0


def test_a_grid_on_both_parts_has_figures_of_the_training_windows() -> None:
    result, again = (search(workload(), cluster(), tiny(generations=0, grid_on="both"), EXACT) for _ in "12")
    assert result.grid_policy == again.grid_policy
    assert max(windows for _, windows, _, _ in result.grid) == sum(
        getattr(tiny(), name) for name in ("train_windows", "validation_windows")
    )


def test_limits_may_be_counted_from_another_policy() -> None:
    usual, other = grid_alone(max_jct_increase=0.0), grid_alone(max_jct_increase=0.0, limits_from="lifo")
    assert other.reference == usual.reference
    charges = [{name: charge for name, _, _, charge in result.grid} for result in (usual, other)]
    shared = set(charges[0]) & set(charges[1])
    assert any(charges[0][name] != charges[1][name] for name in shared)
    with pytest.raises(ValueError, match="unknown order"):
        tiny(limits_from="nonsense+easy")


def test_the_chosen_policy_is_the_simplest_that_is_not_clearly_worse() -> None:
    result = found()
    losses = {kind: one.validation_loss for kind, one in result.judged.items()}
    order = list(losses)
    kept = {kind for kind, one in result.judged.items() if not one.broken}
    assert result.chosen in kept
    for kind in order[: order.index(result.chosen)]:
        assert kind not in kept or losses[result.chosen] <= losses[kind] - 0.01
    for kind in order[order.index(result.chosen) + 1 :]:
        assert kind not in kept or losses[kind] > losses[result.chosen] - 0.01


def test_the_history_tells_of_every_generation_and_progress_of_every_stage() -> None:
    told: list[SearchProgress] = []
    result = search(workload(), cluster(), tiny(), EXACT, progress=told.append)
    assert [one.number for one in result.history] == [0, 1, 2, 3]
    assert [one.number for one in result.history if one.train_loss is not None] == [0, 2, 3]
    assert [one.stage for one in told if one.generation] == ["rule"] * 4
    assert list(dict.fromkeys(one.stage for one in told)) == ["heuristics", "grid", "limits", "rule"]
    assert all(np.isfinite(one.loss) for one in told)


def test_without_generations_there_is_no_rule_but_one_to_start_networks_from() -> None:
    result = grid_alone()
    assert result.rule is None
    assert result.history == ()
    assert result.policy is not None
    assert result.best_rule is result.grid_rule
    assert result.grid_rule.environment.base_policy == result.unguarded.name


@pytest.mark.parametrize("estimates", ["none", "noisy", "history"])
def test_a_search_copes_with_worse_estimates(estimates: Any) -> None:
    simulation = SimulationConfig(estimates=estimates)
    result = search(workload(), cluster(), tiny(generations=1), simulation)
    assert result.rule is not None
    assert np.isfinite(result.judged["rule"].validation_loss)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"exponent": (1.0,)}, "Extra inputs are not permitted"),
        ({"exponents": (0.0,)}, "greater than 0"),
        ({"exponents": (9.0,)}, "less than or equal to 8"),
        ({"exponents": (1.0, 1.0)}, "exponents has a value twice"),
        ({"express_k": ()}, "express_t0_s and express_k go together"),
        ({"backfills": ("conservative",)}, "strict"),
        ({"population": 2}, "greater than or equal to 4"),
        ({"max_jct_increase": -0.1}, "greater than or equal to 0"),
        ({"metric": "slowdown"}, "mean_bounded_slowdown"),
        ({"sigma": float("nan")}, "finite"),
    ],
)
def test_settings_that_cannot_be_are_refused(changes: dict[str, Any], says: str) -> None:
    with pytest.raises(ValidationError, match=says):
        SearchConfig.model_validate(changes)


def test_an_unknown_placement_is_refused_by_name() -> None:
    with pytest.raises(ValidationError, match="unknown placement 'consolidated'"):
        SearchConfig(placement="consolidated")


# --- As a run


@pytest.mark.parametrize(
    ("name", "given", "size"),
    [
        ("demo", {}, 256),
        ("bursty-8gpu", {}, 32),
        ("poisson", {}, 1024),
        ("demo", {"jobs_per_window": 50}, 50),
    ],
)
def test_windows_are_shorter_where_the_usual_ones_find_no_room(
    name: str, given: dict[str, int], size: int
) -> None:
    tables = {"algorithm": "search", "environment": {"workload": name, "cluster": "8x8"}, "search": given}
    config, remarks = Search.prepare(read_config(tables))
    assert config.settings.jobs_per_window == size
    assert config.to_document()["search"]["jobs_per_window"] == size
    assert any("`search.jobs_per_window`" in remark for remark in remarks) == (size in (256, 32))


def test_too_few_jobs_for_any_window_are_left_to_be_refused() -> None:
    assert fitting_window(window(workload(), 0, 60)) is None


def test_seed_and_time_of_a_run_are_those_of_its_search() -> None:
    tables = {"algorithm": "search", "environment": {"workload": "demo"}}
    config = read_config({**tables, "training": {"seed": 7, "minutes": 2}})
    assert (config.settings.seed, config.settings.seconds) == (7, 120.0)
    again = read_config(config.to_document())
    assert (again.settings, again.training.seed) == (config.settings, 7)
    assert read_config({**tables, "search": {"seed": 3}}).training.seed == 3


def test_generations_given_again_lead_to_the_same_rule() -> None:
    def prepared() -> RuleSearch:
        job = RuleSearch(workload(), cluster(), tiny(), EXACT)
        job.prepare()
        return job

    straight, resumed = prepared(), prepared()
    straight.advance()
    straight.advance()
    assert straight.tuning is not None
    assert resumed.tuning is not None
    resumed.tuning.repeat(straight.tuning.losses, straight.tuning.history)
    for job in (straight, resumed):
        while not job.is_over:
            job.advance()
    assert resumed.tuning.losses == straight.tuning.losses
    first, second = straight.result(), resumed.result()
    assert first.judged == second.judged
    assert first.rule is not None
    assert second.rule is not None
    for name, tensor in first.rule.tensors.items():
        np.testing.assert_array_equal(tensor, second.rule.tensors[name])
