"""What the pages about environments promise is what the environments do."""

import inspect
import re
from collections.abc import Iterator
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import gpuyard.env
from gpuyard import _core
from gpuyard.env import EnvConfig
from gpuyard.errors import InputError
from gpuyard.observation.config import BASELINE_METRICS
from gpuyard.observation.presets import env_presets
from support.paths import DOCS
from support.small_environments import COLD

ENVIRONMENTS, MDP, OBSERVATION, METRICS = (
    (DOCS / f"{name}.md").read_text(encoding="utf-8")
    for name in ("guide/environments", "contract/mdp", "contract/observation", "contract/metrics")
)
SMALL: dict[str, Any] = {"jobs_per_episode": 16, **COLD}


def section(text: str, heading: str) -> str:
    """What stands under a heading of the second level."""
    found = re.search(rf"^## {re.escape(heading)}$(.*?)(?=^## |\Z)", text, re.M | re.S)
    assert found, f"no section {heading!r}"
    return found[1]


def plain(text: str) -> str:
    """A text as it reads, wherever its lines are broken."""
    return " ".join(text.split())


def rows(text: str) -> list[list[str]]:
    """The cells of all rows of tables, headings and rules left out."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    tables = [
        line
        for line, after in zip(lines, [*lines[1:], ""], strict=True)
        if not re.match(r"\|[-|]+\|$", after)
    ]
    return [
        [cell.strip() for cell in line[1:-1].split(" | ")]
        for line in tables
        if not re.match(r"\|[-|]+\|$", line)
    ]


def named(text: str) -> list[str]:
    """What is named in the first cell of every row."""
    return [name for row in rows(text) for name in re.findall(r"`([^`]+)`", row[0])]


# --- docs/guide/environments.md ---


def test_all_ids_are_described() -> None:
    assert sorted(named(section(ENVIRONMENTS, "Which one"))) == sorted(gpuyard.env.KINDS)


def test_all_settings_are_described_and_no_others() -> None:
    arguments = section(ENVIRONMENTS, "Arguments")
    first, second = arguments.split("The rest are settings.")
    assert named(second) == list(EnvConfig.model_fields)
    assert named(first) == ["workload", "generator", "cluster", "preset", "render_mode"]


def test_the_defaults_are_those_of_the_code() -> None:
    told = {row[0].strip("`"): row[1].strip("`") for row in rows(section(ENVIRONMENTS, "Arguments"))}
    for name, field in EnvConfig.model_fields.items():
        if field.default is None or name == "simulation":
            continue  # the page says what None stands for
        default = field.default
        if isinstance(default, float):
            assert float(told[name].replace(",", "")) == default, name
        else:
            assert told[name] == str(default).replace("'", '"'), name


def test_the_choices_of_settings_are_described() -> None:
    settings = section(ENVIRONMENTS, "Arguments") + section(ENVIRONMENTS, "Step modes")
    for name in ("step_mode", "tokens", "lookahead", "invalid", "split", "estimates"):
        choices = re.findall(r"'(\w+)'", str(EnvConfig.model_fields[name].annotation))
        assert len(choices) >= 2
        for choice in choices:
            assert f"`{choice}`" in settings, (name, choice)


def test_all_presets_are_described_with_their_environments() -> None:
    told = {
        name: set(re.findall(r"\w+", row[1]))
        for row in rows(section(ENVIRONMENTS, "Presets"))
        for name in re.findall(r"`([^`]+)`", row[0])
    }
    short = {kind: env_id.split("/")[1].removesuffix("-v0") for env_id, kind in gpuyard.env.KINDS.items()}
    assert told == {name: {short[kind] for kind in preset.kinds} for name, preset in env_presets().items()}


def test_all_metrics_of_episodes_are_named_and_defined() -> None:
    told = re.findall(r"`([^`]+)`", "".join(row[1] for row in rows(section(ENVIRONMENTS, "Episodes"))))
    assert sorted(told) == sorted(_core.EPISODE_METRICS)
    for name in _core.EPISODE_METRICS:
        assert f"`{name}`" in METRICS + MDP, name


def test_the_arguments_of_vectors_are_those_of_the_class() -> None:
    known = set(inspect.signature(gpuyard.env.SchedulingVectorEnv).parameters)
    assert set(named(section(ENVIRONMENTS, "Vectors"))) <= known


def test_the_code_of_the_page_runs() -> None:
    code = "\n".join(re.findall(r"```python\n(.*?)```", ENVIRONMENTS, re.S))
    exec(compile(code, "docs/guide/environments.md", "exec"), {})


# --- docs/contract/mdp.md ---


def test_the_actions_on_the_page_are_those_of_the_environments() -> None:
    table = {row[0].strip("`"): row[1] for row in rows(section(MDP, "Actions"))}
    assert sorted(table) == sorted(gpuyard.env.KINDS)
    for env_id, told in table.items():
        env = gymnasium.make(env_id, **SMALL)
        model = env.unwrapped.model
        sizes = {"K": model.config.window_of(model.kind), "P": model.pools, "H": model.hosts}
        space = env.action_space
        if isinstance(space, spaces.Box):
            assert told == "Box(-1, 1, H)"
            assert (space.low.min(), space.high.max(), space.shape) == (-1.0, 1.0, (sizes["H"],))
        else:
            assert isinstance(space, spaces.Discrete)
            number = re.fullmatch(r"Discrete\((.*)\)", told)
            assert number
            assert space.n == eval(number[1].replace("·", "*"), {}, sizes), env_id


def test_the_terms_on_the_page_are_those_of_the_core() -> None:
    text = section(MDP, "Rewards")
    terms = [*named(text), *re.findall(r"\*\*Terminal\*\* term `(\w+)`", text)]
    assert terms == list(_core.REWARD_TERMS)
    listed = re.search(r"Metrics: (.*)\.$", text, re.M)
    assert listed
    assert re.findall(r"`(\w+)`", listed[1]) == list(BASELINE_METRICS)


def test_the_step_modes_on_the_page_are_those_of_the_settings() -> None:
    choices = re.findall(r"'(\w+)'", str(EnvConfig.model_fields["step_mode"].annotation))
    assert [row[0].split("`")[1] for row in rows(section(MDP, "Time"))] == choices


def test_the_default_reward_is_the_one_on_the_page() -> None:
    assert '`{"slowdown": 1.0}` (the default)' in plain(section(MDP, "Rewards"))
    assert EnvConfig().rewards == {"slowdown": 1.0}
    assert EnvConfig().per_job


def states(env_id: str, **settings: Any) -> Iterator[gymnasium.Env[Any, Any]]:
    """An environment in every state of an episode of random actions."""
    env: Any = gymnasium.make(env_id, **{**SMALL, **settings}).unwrapped
    env.reset(seed=0)
    ended = False
    while not ended:
        yield env
        _, _, terminated, truncated, _ = env.step(env.random_action())
        ended = terminated or truncated


def may_wait(env: Any, others: Any) -> bool:
    """A job runs, or nothing else is legal."""
    schedule = env.schedule()
    unfinished = (schedule["end_us"] < 0) | (schedule["end_us"] > schedule["now_us"])
    running = unfinished & (schedule["start_us"] >= 0)
    return bool(running.any() or not others.any())


@pytest.mark.parametrize(
    ("env_id", "place"),
    [("gpuyard/SelectJob-v0", -1), ("gpuyard/SelectJobAndPool-v0", -1), ("gpuyard/AcceptOrSkip-v0", 0)],
)
@pytest.mark.parametrize("step_mode", ["instant", "event"])
def test_waiting_is_legal_if_and_only_if_a_job_runs_or_nothing_else_is(
    env_id: str, place: int, step_mode: str
) -> None:
    seen = set()
    for env in states(env_id, step_mode=step_mode):
        mask = env.action_masks()
        assert bool(mask[place]) == may_wait(env, np.delete(mask, place))
        seen.add(bool(mask[place]))
    assert seen == {False, True}


def test_a_row_is_legal_if_and_only_if_its_job_fits() -> None:
    fits = [name for name, _, _ in _core.JOB_COLUMNS].index("fits")
    for env in states("gpuyard/SelectJob-v0"):
        parts = env._observation()
        assert np.array_equal(parts["mask"][:-1], parts["jobs"][:, fits])


@pytest.mark.parametrize("env_id", ["gpuyard/SelectJob-v0", "gpuyard/SelectJobAndPool-v0"])
def test_in_blocking_mode_every_job_can_be_chosen_and_waiting_cannot(env_id: str) -> None:
    present = [name for name, _, _ in _core.JOB_COLUMNS].index("present")
    for env in states(env_id, step_mode="blocking"):
        parts = env._observation()
        mask = parts["mask"]
        assert mask[-1] == 0
        by_row = mask[:-1].reshape(len(parts["jobs"]), -1).any(axis=1)
        assert np.array_equal(by_row, parts["jobs"][:, present] == 1)


@pytest.mark.parametrize("env_id", sorted(gpuyard.env.KINDS))
def test_something_is_legal_in_every_state_that_is_offered(env_id: str) -> None:
    for env in states(env_id):
        mask = env.action_masks()
        real = mask[1:] if env_id == "gpuyard/AcceptOrSkip-v0" else mask
        if env_id.startswith("gpuyard/SelectJob"):
            real = mask[:-1]
        assert real.any()


def test_a_forbidden_action_raises_and_changes_nothing() -> None:
    for env in states("gpuyard/SelectJob-v0"):
        before = env._observation()
        for action in (int(np.argmin(before["mask"])), -1, env.action_space.n):
            with pytest.raises(gpuyard.env.InvalidActionError):
                env.step(action)
        after = env._observation()
        assert all(np.array_equal(before[name], after[name]) for name in before)


def test_a_forbidden_action_is_a_noop_with_a_penalty_if_asked_for() -> None:
    settings: dict[str, Any] = {**SMALL, "cluster": "4x8"}
    strict: Any = gymnasium.make("gpuyard/SelectJob-v0", **settings).unwrapped
    lenient: Any = gymnasium.make(
        "gpuyard/SelectJob-v0", invalid="noop", invalid_penalty=7.0, **settings
    ).unwrapped
    strict.reset(seed=0)
    lenient.reset(seed=0)
    strict.step(0)  # on an idle cluster waiting is not legal
    observation, *_ = lenient.step(0)
    noop = strict.action_space.n - 1
    assert observation["mask"][noop]
    forbidden = int(np.argmin(observation["mask"]))
    waited, reward, *_ = strict.step(noop)
    punished, less, *_ = lenient.step(forbidden)
    assert less == reward - 7.0
    assert all(np.array_equal(waited[name], punished[name]) for name in waited)


@pytest.mark.parametrize(
    ("env_id", "settings"),
    [
        ("gpuyard/AcceptOrSkip-v0", {"step_mode": "blocking"}),
        ("gpuyard/SelectHost-v0", {"step_mode": "blocking"}),
        ("gpuyard/SelectHost-v0", {"base_policy": "fifo+easy"}),
        ("gpuyard/RankHosts-v0", {"base_policy": "fifo+easy-sjf"}),
        ("gpuyard/SelectJobAndPool-v0", {"base_policy": "fifo/anywhere"}),
        ("gpuyard/SelectHost-v0", {"workload": "demo", "cluster": "32x2"}),
        ("gpuyard/SelectJob-v0", {"base_policy": "fifo+conservative"}),
        ("gpuyard/SelectJob-v0", {"base_policy": "srtf"}),
        ("gpuyard/SelectJob-v0", {"base_policy": "fifo/milp"}),
        ("gpuyard/SelectJob-v0", {"simulation": {"node_mtbf_s": 1e6}}),
        ("gpuyard/SelectJob-v0", {"simulation": {"sleep_after_s": 60}}),
    ],
)
def test_what_the_page_says_is_refused_is_refused(env_id: str, settings: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        gymnasium.make(env_id, **settings)


def test_the_splits_are_those_of_the_page() -> None:
    assert "60, 20 and 20 % by time" in plain(section(MDP, "Episodes"))
    ends = []
    for split in ("train", "validation", "test"):
        source = gymnasium.make("gpuyard/SelectJob-v0", split=split).unwrapped.model.source
        submit = source.workload.frame["submit_s"].to_numpy()
        assert source.begin == (ends[-1] if ends else 0)
        ends.append(source.end)
        share = {"train": 0.6, "validation": 0.8, "test": 1.0}[split]
        limit = submit[0] + share * (submit[-1] - submit[0])
        assert submit[source.end - 1] <= limit
        assert split == "test" or submit[source.end] >= limit
    assert ends[-1] == len(submit)


# --- docs/contract/observation.md ---


def bounds(cell: str) -> tuple[float, float]:
    low, high = cell.split("..")
    return float(low), float(high)


@pytest.mark.parametrize(
    ("heading", "columns"),
    [("Jobs", _core.JOB_COLUMNS), ("Nodes", _core.NODE_COLUMNS), ("Globals", _core.GLOBAL_COLUMNS)],
)
def test_the_columns_on_the_page_are_those_of_the_core(
    heading: str, columns: list[tuple[str, float, float]]
) -> None:
    told = [(row[0].split("`")[1], *bounds(row[2])) for row in rows(section(OBSERVATION, heading))]
    assert told == [tuple(column) for column in columns]


def test_the_optional_columns_on_the_page_are_those_of_the_core() -> None:
    table = rows(section(OBSERVATION, "Optional columns"))
    told = [(row[3], row[0].strip("`"), *bounds(row[2])) for row in table]
    jobs = [("jobs", *column) for column in _core.ASKED_JOB_COLUMNS]
    assert told == [*jobs, *(("globals", *column) for column in _core.ASKED_GLOBAL_COLUMNS)]


def test_optional_columns_are_not_there_unless_they_are_named() -> None:
    plain: Any = gymnasium.make("gpuyard/SelectJob-v0", **SMALL).unwrapped
    assert "starts_in" not in plain.model.parts["jobs"].names
    assert "drain" not in plain.model.parts["globals"].names
    asking: Any = gymnasium.make(
        "gpuyard/SelectJob-v0", job_features=("holds_up", "wait"), global_features=("drain", "queue"), **SMALL
    ).unwrapped
    assert list(asking.model.parts["jobs"].names) == ["holds_up", "wait"]
    assert list(asking.model.parts["globals"].names) == ["drain", "queue"]


def test_the_version_on_the_page_is_that_of_the_core() -> None:
    found = re.search(r"\*\*version (\d+)\*\*", OBSERVATION)
    assert found
    assert int(found[1]) == _core.OBSERVATION_VERSION


@pytest.mark.parametrize("env_id", sorted(gpuyard.env.KINDS))
def test_the_shapes_on_the_page_are_those_of_the_environments(env_id: str) -> None:
    table = {row[0].strip("`"): row[1:3] for row in rows(OBSERVATION.split("\n## ")[0])}
    env = gymnasium.make(env_id, **SMALL)
    model = env.unwrapped.model
    sizes = {
        "K": model.config.window_of(model.kind),
        "P": model.pools,
        "L": model.lookahead,
        "N": model.hosts,
    }
    space = env.observation_space
    assert isinstance(space, spaces.Dict)
    assert set(table) == set(space.spaces)
    for name in ("jobs", "nodes"):
        letter, width = table[name][0].split(" x ")
        assert space[name].shape == (sizes[letter], int(width))
    assert space["globals"].shape == (eval(table["globals"][0].replace("2P", "2*P"), {}, sizes),)
    assert space["mask"].shape == (model.actions,)
    for name, (_, dtype) in table.items():
        assert space[name].dtype == dtype


@pytest.mark.parametrize("mode", ["off", "per_gpu", "sorted", "cdf"])
def test_the_lookahead_has_the_length_on_the_page(mode: str) -> None:
    assert "L = min(G, 64)" in plain(section(OBSERVATION, "Lookahead"))
    assert f"`{mode}`" in section(OBSERVATION, "Lookahead")
    for cluster, gpus in (("4x8", 32), ("16x8", 128)):
        env: Any = gymnasium.make("gpuyard/SelectJob-v0", cluster=cluster, lookahead=mode, **SMALL).unwrapped
        assert env.model.lookahead == min(gpus, 64)
        observation, _ = env.reset(seed=0)
        if mode == "off":
            assert not observation["globals"][-env.model.lookahead :].any()


def test_the_flat_observation_is_the_parts_in_the_order_on_the_page() -> None:
    assert "`jobs` row by row, `nodes` row by row, `globals`, `mask`" in plain(OBSERVATION)
    parts: Any = gymnasium.make("gpuyard/SelectJob-v0", **SMALL)
    flat: Any = gymnasium.make("gpuyard/SelectJob-v0", flatten=True, **SMALL)
    observation, _ = parts.reset(seed=3)
    joined = np.concatenate([observation[name].ravel() for name in ("jobs", "nodes", "globals", "mask")])
    assert np.array_equal(flat.reset(seed=3)[0], joined.astype(np.float32))


def test_features_are_picked_in_the_order_given() -> None:
    names = [name for name, _, _ in _core.JOB_COLUMNS]
    every: Any = gymnasium.make("gpuyard/SelectJob-v0", **SMALL)
    some: Any = gymnasium.make("gpuyard/SelectJob-v0", job_features=("wait", "present"), **SMALL)
    whole, picked = every.reset(seed=0)[0]["jobs"], some.reset(seed=0)[0]["jobs"]
    assert np.array_equal(picked, whole[:, [names.index("wait"), names.index("present")]])
