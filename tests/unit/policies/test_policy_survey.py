"""gpuyard policies: the list of rules, and the survey that runs every one of them."""

import json
import re
from pathlib import Path

import pytest

from gpuyard import cli
from gpuyard.errors import InputError
from gpuyard.policies.grammar import parse_policy
from gpuyard.policy_survey import BEGIN, END, SHOWN, parse_case, policies_to_survey, write_into
from gpuyard.registry import registered
from gpuyard.simulation.run import simulate
from support.command_line import Run, runner

KINDS = ("order", "backfill", "placement")
HEADER = "submit_s,duration_s,gpus,user,group"
JOBS = [f"{7 * i},{40 + 13 * i % 90},{1 + i * i % 5},u{i % 3},g{i % 2}" for i in range(24)]


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a command line where few.csv and shared.csv are: exit code, standard output, standard error."""
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "few.csv").write_text("\n".join([HEADER, *JOBS]) + "\n")
    shared = ["submit_s,duration_s,gpus,gpu_milli", "0,10,1,500", "1,10,1,600", "2,10,2,1000"]
    (tmp_path / "shared.csv").write_text("\n".join(shared) + "\n")
    return runner(capfd, "policies")


# --- the list


def test_the_list_shows_every_rule_with_its_summary(run: Run) -> None:
    code, out, err = run()
    assert (code, err) == (0, "")
    shown = [" ".join(line.split()) for line in out.splitlines()]
    for kind in KINDS:
        for name, rule in registered(kind).items():
            begin = f"{rule.form or name} {' '.join(rule.summary.split()[:3])}"
            assert any(line.startswith(begin) for line in shown), begin
    assert "express:T0:K" in out


def test_the_list_as_json_says_what_each_rule_needs_and_where_it_comes_from(run: Run) -> None:
    _, out, _ = run("--json")
    listed = json.loads(out)
    assert list(listed) == list(KINDS)
    for kind, rules in listed.items():
        assert [rule["name"] for rule in rules] == list(registered(kind))
        for rule in rules:
            assert set(rule) == {"name", "summary", "uses_estimates", "preempts", "source", "form", "example"}
            assert rule["summary"]
            assert rule["source"]
    orders = {rule["name"]: rule for rule in listed["order"]}
    assert (orders["srtf"]["uses_estimates"], orders["srtf"]["preempts"]) == (True, True)
    assert (orders["las"]["uses_estimates"], orders["las"]["preempts"]) == (False, True)
    assert (orders["sjf"]["uses_estimates"], orders["sjf"]["preempts"]) == (True, False)
    assert "Tiresias" in orders["tiresias"]["source"]


# --- the survey


def test_every_rule_is_surveyed_in_a_legal_policy_and_none_runs_twice() -> None:
    surveyed = [policy for _, policy in policies_to_survey()]
    assert len(surveyed) == len(set(surveyed))
    specs = [parse_policy(policy) for policy in surveyed]
    for kind in KINDS:
        assert {getattr(spec, kind).partition(":")[0] for spec in specs} == set(registered(kind))
    for spec in specs:
        assert not spec.preempts or spec.backfill in ("strict", "greedy")
        assert not spec.is_optimised or spec.backfill == "strict"


def test_the_survey_gives_every_policys_metrics_as_json(run: Run, tmp_path: Path) -> None:
    code, out, err = run("survey", "few.csv@4x4:v100", "--json", "--seed", "3")
    assert code == 0
    printed = json.loads(out)
    assert (printed["cases"], printed["settings"]["seed"]) == (["few on 4x4:v100"], 3)
    rows = printed["policies"]
    assert [(row["kind"], row["policy"]) for row in rows] == policies_to_survey()
    assert [row["refused"] for row in rows] == [""] * len(rows)
    assert all(len(row["metrics"]) == 1 for row in rows)
    for row in rows[:3]:
        expected = simulate(tmp_path / "few.csv", "4x4:v100", row["policy"]).metrics()
        assert row["metrics"][0]["mean_wait_s"] == pytest.approx(expected["mean_wait_s"])
    assert err.count("\n") == len(rows)


def test_what_a_case_does_not_allow_is_left_open_with_the_reason(run: Run) -> None:
    _, out, _ = run("survey", "shared.csv@2x4", "few.csv@4x4:v100", "--json")
    rows = {row["policy"]: row for row in json.loads(out)["policies"]}
    power, plain = rows["power-aware+easy/consolidate"], rows["fifo+easy/fgd"]
    assert power["metrics"][0] is None
    assert power["metrics"][1]["completed_jobs"] == 24
    assert "idle_w and peak_w of GPU type gpu" in power["refused"]
    assert "share GPUs" in rows["fifo+conservative/consolidate"]["refused"]
    assert "share GPUs" in rows["fifo+strict/milp"]["refused"]
    assert (plain["refused"], plain["metrics"][0]["completed_jobs"]) == ("", 3)


def test_the_tables_have_a_line_a_policy_and_a_dash_for_what_was_not_run(run: Run) -> None:
    code, out, _ = run("survey", "shared.csv@2x4")
    assert code == 0
    assert out.startswith("### shared on 2x4: 3 jobs, estimates exact\n")
    lines = [line for line in out.splitlines() if line.startswith("| `")]
    assert [line.split("`")[1] for line in lines] == [policy for _, policy in policies_to_survey()]
    assert {line.count("|") for line in lines} == {len(SHOWN) + 2}
    (refused,) = (line for line in lines if "`power-aware+easy/consolidate`" in line)
    assert refused.count(" - ") == len(SHOWN)
    assert re.search(r"^\* `fifo\+strict/milp`: .*share GPUs", out, re.MULTILINE)


def test_only_the_first_jobs_are_taken_if_so_many_are_asked_for(run: Run, tmp_path: Path) -> None:
    _, out, _ = run("survey", "few.csv@4x4:v100", "--jobs", "5", "--json")
    assert {row["metrics"][0]["completed_jobs"] for row in json.loads(out)["policies"]} == {5}
    assert len(parse_case(f"{tmp_path}/few.csv@4x4", 100).workload) == len(JOBS)


def test_tables_go_between_the_marks_of_a_page(run: Run, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"# Title\n\n{BEGIN}\nold\n{END}\n\nThe end.\n")
    code, out, err = run("survey", "few.csv@4x4:v100", "--into", page)
    assert (code, out) == (0, "")
    assert err.endswith(f"Written into {page}\n")
    first = page.read_text()
    assert first.startswith(f"# Title\n\n{BEGIN}\n\n### few on 4x4:v100: 24 jobs")
    assert first.endswith(f"\n\n{END}\n\nThe end.\n")
    assert "old" not in first
    run("survey", "few.csv@4x4:v100", "--into", page)
    assert page.read_text() == first


@pytest.mark.parametrize(
    "text", ["no marks", BEGIN, END, f"{END}\n{BEGIN}", f"{BEGIN}{BEGIN}{END}", f"{BEGIN}{END}{END}"]
)
def test_a_page_without_the_two_marks_is_refused_and_left_alone(tmp_path: Path, text: str) -> None:
    page = tmp_path / "page.md"
    page.write_text(text)
    with pytest.raises(InputError, match=r"page\.md: expected the marks .*once each"):
        write_into(page, "tables")
    assert page.read_text() == text


def test_the_command_refuses_a_page_without_marks(run: Run, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("no marks")
    code, out, err = run("survey", "few.csv@4x4:v100", "--into", page, "--jobs", "2")
    assert (code, out) == (cli.BAD_INPUT, "")
    assert "error: " in err.splitlines()[-1]
    assert "expected the marks" in err.splitlines()[-1]
    assert page.read_text() == "no marks"


def test_a_page_without_marks_is_refused_before_the_long_work(run: Run, tmp_path: Path) -> None:
    (tmp_path / "page.md").write_text("no marks")
    _, _, err = run("survey", "few.csv@4x4:v100", "--into", tmp_path / "page.md", "--jobs", "2")
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["few.csv"], "expected WORKLOAD@CLUSTER"),
        (["@4x4"], "expected WORKLOAD@CLUSTER"),
        (["few.csv@"], "expected WORKLOAD@CLUSTER"),
        (["few.csv@phily"], "'philly'"),
        (["none.csv@4x4"], "no such file"),
        (["few.csv@4x4", "--jobs", "0"], "--jobs 0"),
        (["few.csv@4x4", "--into", "none.md"], "--into none.md"),
        (["few.csv@4x4", "--wake", "1"], "--sleep-after"),
    ],
)
def test_a_survey_that_cannot_be_is_refused_in_one_line(run: Run, arguments: list[str], words: str) -> None:
    code, out, err = run("survey", *arguments)
    assert (code, out) == (cli.BAD_INPUT, "")
    assert err.count("\n") == 1
    assert words in err
