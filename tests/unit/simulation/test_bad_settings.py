"""Settings that contradict each other, the cluster or the jobs: one clear line, from Python and the shell."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from pydantic import ValidationError

from gpuyard import _core, cli
from gpuyard.cluster.model import parse_cluster
from gpuyard.config import SimulationConfig
from gpuyard.errors import InputError
from gpuyard.simulation.run import simulate
from gpuyard.workload import Workload, make_workload, read_workload
from support.command_line import Run, runner

CSV = "submit_s,duration_s,gpus,group\n0,100,8,a\n1,100,8,b\n2,10,1,a\n"
SHARED_CSV = "submit_s,duration_s,gpus,gpu_milli\n0,100,1,500\n1,100,8,1000\n"
LIMITED_CSV = "submit_s,duration_s,gpus,cpus\n0,100,1,4\n1,100,8,8\n"
NO_GPU_CSV = "submit_s,duration_s,gpus,cpus\n0,100,0,4\n1,100,8,8\n"
LIMITED = "[[nodes]]\ncount = 2\ngpus = 8\ncpus = 32\n"
OWNED = '[[nodes]]\ncount = 2\ngpus = 8\nowner = "a"\n[[nodes]]\ncount = 1\ngpus = 8\n'


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a command line in an empty directory: exit code, standard output, standard error."""
    monkeypatch.chdir(tmp_path)
    return runner(capfd)


def assert_refused(code: int, out: str, err: str, *words: str) -> None:
    assert (code, out) == (cli.BAD_INPUT, ""), err
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert "unexpected" not in err
    for word in words:
        assert word in err, err


@dataclass(frozen=True)
class Bad:
    """Settings, the same as options, and words that the message must have; `option` only in the shell.

    The shell has its own words for pydantic's (`IN_THE_SHELL`).
    """

    settings: dict[str, Any]
    options: list[str]
    words: list[str]
    option: str = ""
    policy: str = "fifo"
    cluster: str = "2x8"
    jobs: str = CSV
    files: dict[str, str] = field(default_factory=dict)


IN_THE_SHELL = {
    "greater than": "or more",
    "greater than or equal to": "or more",
    "greater than or equal to 0": "expected 0 or more",
    "greater than 0": "expected more than 0",
    "less than": "or less",
    "integer": "is not a whole number",
}

# Refused by the settings alone.
INCONSISTENT = {
    "wake without sleep": Bad({"wake_s": 10}, ["--wake", "10"], ["no effect without"], "--sleep-after"),
    "repair without failures": Bad(
        {"node_mttr_s": 10}, ["--node-mttr", "10"], ["no effect without"], "--node-mtbf"
    ),
    "checkpoints without failures": Bad(
        {"checkpoint_every_s": 10}, ["--checkpoint-every", "10"], ["no effect without"], "--node-mtbf"
    ),
    "failures before time": Bad(
        {"node_mtbf_s": -5}, ["--node-mtbf", "-5"], ["greater than or equal to"], "--node-mtbf -5"
    ),
    "failures all the time": Bad({"node_mtbf_s": 0}, ["--node-mtbf", "0"], ["greater than"], "--node-mtbf 0"),
    "failures never": Bad({"node_mtbf_s": 1e11}, ["--node-mtbf", "1e11"], ["less than"], "--node-mtbf"),
    "repair in no time": Bad(
        {"node_mtbf_s": 5, "node_mttr_s": 0},
        ["--node-mtbf", "5", "--node-mttr", "0"],
        ["greater than"],
        "--node-mttr 0",
    ),
    "levels that fall": Bad(
        {"tiresias_levels_gpu_s": (10, 5)},
        ["--tiresias-levels", "10,5"],
        ["must ascend", "10, 5"],
        "--tiresias-levels",
    ),
    "two levels alike": Bad(
        {"tiresias_levels_gpu_s": (5, 5)},
        ["--tiresias-levels", "5,5"],
        ["must ascend", "5, 5"],
        "--tiresias-levels",
    ),
    "a level of 0": Bad(
        {"tiresias_levels_gpu_s": (0, 5)},
        ["--tiresias-levels", "0,5"],
        ["greater than 0"],
        "--tiresias-levels",
    ),
    "levels in words": Bad(
        {"tiresias_levels_gpu_s": ("few",)}, ["--tiresias-levels", "few"], ["number"], "--tiresias-levels"
    ),
    "a cap of 0": Bad({"power_cap_w": 0}, ["--power-cap", "0"], ["greater than 0"], "--power-cap 0"),
    "sleep before time": Bad(
        {"sleep_after_s": -1}, ["--sleep-after", "-1"], ["greater than"], "--sleep-after -1"
    ),
    "ticks without end": Bad({"reschedule_s": 0}, ["--reschedule", "0"], ["greater than"], "--reschedule 0"),
    "runs of no time": Bad({"min_run_s": -1}, ["--min-run", "-1"], ["greater than"], "--min-run -1"),
    "a share of 0": Bad(
        {"user_shares": {"a": 0}}, ["--user-shares", "a:0"], ["greater than 0"], "--user-shares"
    ),
    "a quota below 0": Bad(
        {"group_quotas": {"a": -1}},
        ["--group-quotas", "a:-1"],
        ["greater than or equal to 0"],
        "--group-quotas",
    ),
    "half a GPU as a quota": Bad(
        {"group_quotas": {"a": 0.5}}, ["--group-quotas", "a:0.5"], ["integer"], "--group-quotas"
    ),
    "a weight below 0": Bad({"age_weight": -1}, ["--age-weight", "-1"], ["greater than"], "--age-weight -1"),
    "a weight that is nan": Bad(
        {"age_weight": float("nan")}, ["--age-weight", "nan"], ["number"], "--age-weight"
    ),
    "promotion at once": Bad({"starvation_s": 0}, ["--starvation", "0"], ["greater than"], "--starvation 0"),
}

# Refused because of the cluster, the jobs or the policy.
IMPOSSIBLE = {
    "quotas over capacity": Bad(
        {"group_quotas": {"a": 16, "b": 1}}, ["--group-quotas", "a:16,b:1"], ["17 GPUs", "2x8 has 16"]
    ),
    "quotas on owned nodes": Bad(
        {"group_quotas": {"a": 1}},
        ["--group-quotas", "a:1"],
        ["without owned nodes", "owned by a"],
        cluster="owned.toml",
        files={"owned.toml": OWNED},
    ),
    "a quota too small without borrowing": Bad(
        {"group_quotas": {"a": 7}, "quota_borrowing": False},
        ["--group-quotas", "a:7", "--no-quota-borrowing"],
        ["row 0", "8 GPUs", "within its group's quota"],
    ),
    "a cap below the idle draw": Bad(
        {"power_cap_w": 639}, ["--power-cap", "639"], ["639", "640 W", "idle"], cluster="2x8:v100"
    ),
    "a cap under which a job never runs": Bad(
        {"power_cap_w": 640 + 7 * 260},
        ["--power-cap", "2460"],
        ["row 0", "8 GPUs", "under a power cap of 2460 W"],
        cluster="2x8:v100",
    ),
    "a cap without watts": Bad({"power_cap_w": 9000}, ["--power-cap", "9000"], ["idle_w", "GPU type gpu"]),
    "power-aware order without watts": Bad(
        {}, [], ["power-aware", "idle_w and peak_w"], policy="power-aware"
    ),
    "power-aware placement without watts": Bad(
        {}, [], ["power-aware", "64x8:v100"], policy="fifo/power-aware"
    ),
    "a tier on large nodes": Bad(
        {}, [], ["placement tier", "at most 16 GPUs"], policy="fifo/tier", cluster="2x17"
    ),
    "milp with shared jobs": Bad({}, [], ["milp", "share GPUs"], policy="fifo/milp", jobs=SHARED_CSV),
    "milp with CPU-only jobs": Bad({}, [], ["milp", "have none"], policy="fifo/milp", jobs=NO_GPU_CSV),
    "milp with limits of CPUs": Bad(
        {},
        [],
        ["milp", "limits of CPUs"],
        policy="fifo/milp",
        jobs=LIMITED_CSV,
        cluster="limited.toml",
        files={"limited.toml": LIMITED},
    ),
    "reservations of shared GPUs": Bad(
        {}, [], ["conservative", "share GPUs", "use easy"], policy="fifo+conservative", jobs=SHARED_CSV
    ),
    "preemption of reservations": Bad({}, [], ["las preempts", "las+greedy"], policy="las+easy"),
    "requests that nobody made": Bad(
        {"estimates": "requested"}, ["--estimates", "requested"], ["no estimate_s", "exact, noisy, history"]
    ),
}


@pytest.mark.parametrize("bad", INCONSISTENT.values(), ids=INCONSISTENT.keys())
def test_python_refuses_inconsistent_settings(bad: Bad) -> None:
    with pytest.raises(ValidationError) as error:
        SimulationConfig(**bad.settings)
    problems = error.value.errors()
    assert len(problems) == 1
    for word in bad.words:
        assert word in problems[0]["msg"]


@pytest.mark.parametrize("bad", INCONSISTENT.values(), ids=INCONSISTENT.keys())
def test_the_shell_refuses_inconsistent_settings_by_the_options_name(run: Run, bad: Bad) -> None:
    words = [IN_THE_SHELL.get(word, word) for word in bad.words]
    assert_refused(*run("simulate", "demo", *bad.options), *words, bad.option)


@pytest.mark.parametrize("bad", IMPOSSIBLE.values(), ids=IMPOSSIBLE.keys())
def test_python_refuses_what_cannot_be(tmp_path: Path, bad: Bad) -> None:
    for name, text in {"jobs.csv": bad.jobs, **bad.files}.items():
        (tmp_path / name).write_text(text)
    cluster = str(tmp_path / bad.cluster) if bad.files else bad.cluster
    with pytest.raises(InputError) as error:
        simulate(tmp_path / "jobs.csv", cluster, bad.policy, SimulationConfig(**bad.settings))
    assert "\n" not in str(error.value)
    for word in bad.words:
        assert word in str(error.value)


@pytest.mark.parametrize("bad", IMPOSSIBLE.values(), ids=IMPOSSIBLE.keys())
@pytest.mark.parametrize("verb", ["simulate", "explain"])
def test_the_shell_refuses_what_cannot_be(run: Run, tmp_path: Path, bad: Bad, verb: str) -> None:
    if verb == "explain" and "milp" in bad.policy:
        pytest.skip("milp is not explained at all")
    for name, text in {"jobs.csv": bad.jobs, **bad.files}.items():
        (tmp_path / name).write_text(text)
    row = [] if verb == "simulate" else ["0"]
    how = ["--cluster", bad.cluster, "--policy", bad.policy, *bad.options]
    assert_refused(*run(verb, "jobs.csv", *row, *how), *bad.words)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--group-quotas", "nonsense"], ["--group-quotas nonsense: ", "name:number pairs"]),
        (["--group-quotas", "a:1,a:2"], ["--group-quotas a:1,a:2: ", "'a' is given twice"]),
        (["--group-quotas", "a:1,"], ["--group-quotas a:1,: ", "vision:64,speech:32"]),
        (["--group-quotas", "a:"], ["--group-quotas", "is not a whole number"]),
        (["--user-shares", "a:b"], ["--user-shares", "number"]),
        (["--user-shares", "a"], ["--user-shares a: ", "name:number pairs"]),
        (["--group-shares", "a=1"], ["--group-shares a=1: ", "name:number pairs"]),
        (["--tiresias-levels", ""], ["--tiresias-levels", "number"]),
        (["--tiresias-levels", "1;2"], ["--tiresias-levels", "number"]),
        (["--node-mtbf", "often"], ["--node-mtbf", "often"]),
        (["--estimates", "histori"], ["--estimates histori: ", "did you mean 'history'"]),
    ],
)
def test_what_cannot_be_read_is_quoted_with_what_was_expected(
    run: Run, options: list[str], words: list[str]
) -> None:
    assert_refused(*run("simulate", "demo", *options), *words)


def test_a_quota_that_just_fits_and_a_cap_that_just_does_are_taken(tmp_path: Path) -> None:
    (tmp_path / "jobs.csv").write_text(CSV)
    jobs: Workload = read_workload(tmp_path / "jobs.csv")
    quotas = SimulationConfig(group_quotas={"a": 8, "b": 8}, quota_borrowing=False)
    assert len(simulate(jobs, "2x8", "fifo", quotas).schedule) == 3
    capped = simulate(jobs, parse_cluster("2x8:v100"), "fifo", SimulationConfig(power_cap_w=640 + 8 * 260))
    assert capped.schedule.start_us.tolist() == [0, 100_000_000, 200_000_000]


def failing_for_ever() -> tuple[Workload, SimulationConfig]:
    frame = pl.DataFrame({"submit_s": [0.0, 1.0], "duration_s": [1e-6, 1e6], "gpus": [1, 1]})
    return make_workload(frame), SimulationConfig(node_mtbf_s=1.0, node_mttr_s=0.001)


def test_a_job_that_fails_for_ever_is_named_and_the_users_to_mend() -> None:
    jobs, config = failing_for_ever()
    with pytest.raises(_core.EndlessFailuresError, match=r"job 1 .*100,?000 .*checkpoint") as raised:
        simulate(jobs, "1x1", "fifo", config)
    assert isinstance(raised.value, InputError)


def test_a_policy_that_breaks_is_not_taken_for_bad_settings() -> None:
    class Broken:
        def decide(self, snapshot: _core.Snapshot) -> _core.Decision:
            raise RuntimeError("I know of no node failures")

    with pytest.raises(RuntimeError, match="I know of no"):
        simulate(failing_for_ever()[0], "1x1", Broken())
