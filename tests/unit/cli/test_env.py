"""``gpuyard env``: what it lists and describes, and episodes as files that give the same results again."""

import json
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import polars as pl
import pytest

import gpuyard.env
from gpuyard.env.describe import KIND_TEXTS, named_environment
from gpuyard.env.export import RANDOM, run_policy
from gpuyard.env.registration import KINDS
from gpuyard.observation.presets import env_presets
from gpuyard.workload import make_workload, read_workload, write_workload
from support.command_line import Run, runner
from support.small_environments import COLD


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a command line in this process: exit code, standard output, standard error."""
    monkeypatch.setenv("COLUMNS", "140")
    return runner(capfd, "env")


EXACT = ("--set", "estimates=exact")


def document(run: Run, *arguments: object) -> Any:
    code, out, errors = run(*arguments, "--json")
    assert (code, errors) == (0, "")
    return json.loads(out)


# List


def test_the_list_names_every_environment_and_preset(run: Run) -> None:
    code, out, _ = run("list")
    assert code == 0
    assert [name for name in (*KINDS, *env_presets()) if name not in out] == []
    listed = document(run, "list")
    assert [entry["id"] for entry in listed["environments"]] == list(KINDS)
    assert [entry["name"] for entry in listed["presets"]] == list(env_presets())


def test_every_kind_of_environment_is_put_in_words() -> None:
    assert set(KIND_TEXTS) == set(KINDS.values())


# Describe


@pytest.mark.parametrize("name", [*KINDS, "bursty-8gpu", "host-farm"])
def test_a_description_has_the_shapes_of_the_spaces(run: Run, name: str) -> None:
    described = document(run, "describe", name)
    preset = {"preset": name} if name in env_presets() else {}
    env = gymnasium.make(described["id"], disable_env_checker=True, **preset)
    parts = described["observation"]["parts"]
    assert isinstance(env.observation_space, gymnasium.spaces.Dict)
    for part, what in parts.items():
        space = env.observation_space[part]
        assert isinstance(space, gymnasium.spaces.Box)
        assert tuple(what["shape"]) == space.shape
        low = [column["low"] for column in what["columns"] for _ in range(column["count"])]
        assert len(low) == what["shape"][-1]
        assert np.array_equal(np.broadcast_to(np.array(low, np.float32), space.shape), space.low)
    assert described["observation"]["mask"]["shape"] == [env.observation_space["mask"].shape[0]]
    assert described["action"]["space"] == str(env.action_space)


def test_columns_on_request_are_described_until_they_are_requested(run: Run) -> None:
    _, out, _ = run("describe", "SelectJob-v0")
    assert "Optional columns of jobs, if job_features names them: starts_in, holds_up" in out
    assert "Optional columns of globals, if global_features names them: drain" in out
    asked = document(run, "describe", "SelectJob-v0")["observation"]["on_request"]
    assert asked["jobs"][0] == {"name": "starts_in", "low": 0.0, "high": 1.0}
    assert [column["name"] for column in asked["globals"]] == ["drain"]
    some = ("describe", "SelectJob-v0", "--set", 'job_features=["area", "starts_in"]')
    assert [c["name"] for c in document(run, *some)["observation"]["on_request"]["jobs"]] == ["holds_up"]


def test_a_description_for_people_names_every_column_and_the_rewards(run: Run) -> None:
    code, out, _ = run("describe", "bursty-8gpu")
    assert code == 0
    columns = document(run, "describe", "bursty-8gpu")["observation"]["parts"]
    assert [
        column["name"] for part in columns.values() for column in part["columns"] if column["name"] not in out
    ] == []
    for words in (
        "idle_while_feasible 0.05",
        "fifo+greedy",
        "event",
        "400 jobs drawn anew",
        "1x8 (1 node, 8 GPUs)",
    ):
        assert words in out


def test_settings_change_the_description(run: Run) -> None:
    described = document(
        run,
        *(
            "describe",
            "SelectJob-v0",
            "--set",
            "window=7",
            "--set",
            'rewards={"wait": 2}',
            "--cluster",
            "3x4",
        ),
    )
    assert described["action"]["count"] == 8
    assert described["settings"]["rewards"] == {"wait": 2.0}
    assert described["episodes"]["cluster"] == {"name": "3x4", "nodes": 3, "gpus": 12}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("describe", "gpuyard/SelectJobs-v0"), "did you mean 'gpuyard/SelectJob-v0'"),
        (("describe", "bursty-8gpus"), "did you mean 'bursty-8gpu'"),
        (("describe", "bursty-8gpu", "--set", "windw=3"), "did you mean 'window'"),
        (("describe", "bursty-8gpu", "--set", "window=none"), "window"),
        (("describe", "bursty-8gpu", "--set", "cluster=1x8"), "write --cluster 1x8"),
        (("describe", "bursty-8gpu", "--preset", "host-farm"), "is a preset itself"),
        (("describe", "SelectJob-v0", "--preset", "host-farm"), "is for select-host or rank-hosts"),
        (("export", "bursty-8gpu", "--seeds", "1,x", "--out", "never"), "such as 42,43,44"),
        (("export", "SelectJob-v0", "--seeds", "1", "--out", "never", "--set", "warmup_jobs=5"), "warm-up"),
        (
            ("export", "SelectJob-v0", "--seeds", "1", "--out", "never", "--set", "cooldown_jobs=5"),
            "cool-down",
        ),
        (
            ("export", "SelectJob-v0", "--seeds", "1", "--out", "never", "--set", "estimates=history"),
            "jobs before",
        ),
        (
            ("export", "bursty-8gpu", "--seeds", "1", "--out", "never", "--policy", "sjff"),
            "did you mean 'sjf'",
        ),
    ],
)
def test_what_is_wrong_is_named_and_nothing_is_written(
    run: Run, arguments: tuple[str, ...], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, errors = run(*arguments)
    assert (code, out) == (2, "")
    assert words in errors
    assert list(tmp_path.iterdir()) == []


# Export


def replayed(folder: Path, jobs: str) -> Any:
    """An environment made of the files of an episode alone, and what they say of it."""
    said = json.loads((folder / "episode.json").read_text())
    env = gymnasium.make(
        said["id"],
        workload=str(folder / jobs),
        cluster=str(folder / "cluster.toml"),
        disable_env_checker=True,
        **said["settings"],
    )
    return env.unwrapped, said


def followed(env: Any, policy: str, **reset: Any) -> Any:
    """Observations and schedule of an episode under a policy."""
    observation, _ = env.reset(**reset)
    seen, over = [observation], False
    while not over:
        observation, _, terminated, truncated, _ = env.step(env.expert_action(policy))
        seen.append(observation)
        over = terminated or truncated
    return seen, env.schedule()


SMALL = ("--set", "jobs_per_episode=40")


@pytest.mark.parametrize("name", ["bursty-8gpu", "host-farm", "SelectJob-v0", "SelectJobAndPool-v0"])
def test_an_exported_episode_is_the_one_of_the_environment_to_the_last_bit(
    run: Run, name: str, tmp_path: Path
) -> None:
    episodes = document(run, "export", name, "--seeds", "42,43", "--out", tmp_path, *SMALL)["episodes"]
    assert [episode["seed"] for episode in episodes] == [42, 43]
    source, _ = named_environment(name, {"jobs_per_episode": 40, **COLD})
    for episode in episodes:
        again, said = replayed(tmp_path / f"seed-{episode['seed']}", "jobs.parquet")
        policy = said["results"][0]["policy"]
        seen, schedule = followed(source, policy, **said["reset"])
        seen_again, schedule_again = followed(again, policy, seed=0)
        assert len(seen) == len(seen_again) > 40
        for one, other in zip(seen, seen_again, strict=True):
            for part in one:
                if name != "host-farm" or part not in ("nodes", "mask"):  # drawn farms are padded
                    assert np.array_equal(one[part], other[part]), part
        for column in ("submit_us", "start_us", "end_us", "node", "node_gpus"):
            assert np.array_equal(schedule[column], schedule_again[column]), column


def test_results_can_be_had_again_from_the_csv_files(run: Run, tmp_path: Path) -> None:
    run("export", "bursty-8gpu", "--seeds", "7", "--out", tmp_path, *SMALL)
    env, said = replayed(tmp_path / "seed-7", "jobs.csv")
    assert [result["policy"] for result in said["results"]] == ["fifo", "sjf", "fifo+easy", RANDOM]
    returns = {result["return"] for result in said["results"]}
    assert len(returns) > 1
    for result in said["results"]:
        again = json.loads(json.dumps(run_policy(env, result["policy"], said["seed"])))
        numbers = {key: value for key, value in again["metrics"].items() if value == value}  # JSON has no NaN
        assert again["return"] == result["return"]
        assert numbers == {key: value for key, value in result["metrics"].items() if value is not None}


def test_the_horizon_is_the_time_after_which_nothing_is_done(run: Run, tmp_path: Path) -> None:
    run("export", "bursty-8gpu", "--seeds", "3", "--out", tmp_path, *SMALL)
    said = json.loads((tmp_path / "seed-3" / "episode.json").read_text())
    frame = read_workload(tmp_path / "seed-3" / "jobs.csv").frame
    work = sum(gpus * seconds for gpus, seconds in zip(frame["gpus"], frame["duration_s"], strict=True))
    assert said["horizon_s"] == pytest.approx(frame["submit_s"][-1] + 1.3 * work / 8, rel=1e-12)


def test_windows_of_a_workload_keep_their_rows(run: Run, tmp_path: Path) -> None:
    columns = {"submit_s": np.arange(50.0), "duration_s": np.full(50, 20.0), "gpus": np.full(50, 2)}
    write_workload(make_workload(pl.DataFrame(columns)), tmp_path / "all.csv")
    where = ("--workload", tmp_path / "all.csv", "--cluster", "2x4", "--out", tmp_path)
    document(run, "export", "SelectJob-v0", "--seeds", "1,2", "--set", "jobs_per_episode=10", *EXACT, *where)
    rows = [read_workload(tmp_path / f"seed-{seed}" / "jobs.csv").frame["row"].to_list() for seed in (1, 2)]
    assert rows[0] != rows[1]
    for some in rows:
        assert some == list(range(some[0], some[0] + 10))
    assert read_workload(tmp_path / "seed-1" / "jobs.csv").frame["submit_s"][0] == 0.0


def test_policies_that_are_asked_for_come_after_the_usual_ones(run: Run, tmp_path: Path) -> None:
    code, out, _ = run(
        "export", "RankHosts-v0", "--preset", "host-farm", "--seeds", "5", "--out", tmp_path, *SMALL
    )
    assert code == 0
    assert "random-feasible" in out
    more = ("--policy", "fifo+greedy/tetris")
    results = document(run, "export", "host-farm", "--seeds", "5", "--out", tmp_path, *SMALL, *more)[
        "episodes"
    ][0]["results"]
    assert [result["policy"] for result in results][-2:] == [RANDOM, "fifo+greedy/tetris"]
    assert all(result["metrics"]["unfinished_jobs"] == 0 for result in results)


def test_importing_the_package_registers_the_ids() -> None:
    assert set(gpuyard.env.KINDS) <= set(gymnasium.registry)
