"""The survey of policies: every one of them on some workloads, as tables of a page."""

import re
from pathlib import Path

import pytest

from experiments.policy_survey import (
    BEGIN,
    END,
    SHOWN,
    main,
    parse_case,
    policies_to_survey,
    survey,
    write_into,
)
from gpuyard.errors import InputError
from gpuyard.policies.grammar import parse_policy
from gpuyard.registry import registered
from gpuyard.simulation.run import simulate

KINDS = ("order", "backfill", "placement")
HEADER = "submit_s,duration_s,gpus,user,group"
JOBS = [f"{7 * i},{40 + 13 * i % 90},{1 + i * i % 5},u{i % 3},g{i % 2}" for i in range(24)]


@pytest.fixture(autouse=True)
def jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Be where few.csv and shared.csv are."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "few.csv").write_text("\n".join([HEADER, *JOBS]) + "\n")
    shared = ["submit_s,duration_s,gpus,gpu_milli", "0,10,1,500", "1,10,1,600", "2,10,2,1000"]
    (tmp_path / "shared.csv").write_text("\n".join(shared) + "\n")


def test_every_rule_is_surveyed_in_a_legal_policy_and_none_runs_twice() -> None:
    surveyed = [policy for _, policy in policies_to_survey()]
    assert len(surveyed) == len(set(surveyed))
    specs = [parse_policy(policy) for policy in surveyed]
    for kind in KINDS:
        assert {getattr(spec, kind).partition(":")[0] for spec in specs} == set(registered(kind))
    for spec in specs:
        assert not spec.preempts or spec.backfill in ("strict", "greedy")
        assert not spec.is_optimised or spec.backfill == "strict"


def test_the_survey_has_every_policys_metrics(capsys: pytest.CaptureFixture[str]) -> None:
    rows = survey([parse_case("few.csv@4x4:v100", None)])
    assert [(row.kind, row.policy) for row in rows] == policies_to_survey()
    assert {row.refused for row in rows} == {""}
    for row in rows[:3]:
        expected = simulate("few.csv", "4x4:v100", row.policy).metrics()
        assert row.metrics == [expected]
    assert capsys.readouterr().err.count("\n") == len(rows)


def test_what_a_case_does_not_allow_is_left_open_with_the_reason() -> None:
    cases = [parse_case(case, None) for case in ("shared.csv@2x4", "few.csv@4x4:v100")]
    rows = {row.policy: row for row in survey(cases)}
    power, plain = rows["power-aware+easy/consolidate"], rows["fifo+easy/fgd"]
    assert power.metrics[0] is None
    assert power.metrics[1] is not None
    assert power.metrics[1]["completed_jobs"] == 24
    assert "idle_w and peak_w of GPU type gpu" in power.refused
    assert "share GPUs" in rows["fifo+conservative/consolidate"].refused
    assert "share GPUs" in rows["fifo+strict/milp"].refused
    assert plain.metrics[0] is not None
    assert (plain.refused, plain.metrics[0]["completed_jobs"]) == ("", 3)


def test_the_tables_have_a_line_per_policy_and_a_dash_for_what_was_not_run(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["shared.csv@2x4"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("### shared on 2x4: 3 jobs, estimates history\n")
    lines = [line for line in out.splitlines() if line.startswith("| `")]
    assert [line.split("`")[1] for line in lines] == [policy for _, policy in policies_to_survey()]
    assert {line.count("|") for line in lines} == {len(SHOWN) + 2}
    (refused,) = (line for line in lines if "`power-aware+easy/consolidate`" in line)
    assert refused.count(" - ") == len(SHOWN)
    assert re.search(r"^\* `fifo\+strict/milp`: .*share GPUs", out, re.MULTILINE)


def test_only_the_first_jobs_are_taken_if_so_many_are_asked_for() -> None:
    assert len(parse_case("few.csv@4x4", 5).workload) == 5
    assert len(parse_case("few.csv@4x4", 100).workload) == len(JOBS)


def test_tables_go_between_the_marks_of_a_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"# Title\n\n{BEGIN}\nold\n{END}\n\nThe end.\n")
    command = ["few.csv@4x4:v100", "--into", str(page), "--jobs", "3"]
    assert main(command) == 0
    assert capsys.readouterr().out == ""
    first = page.read_text()
    assert first.startswith(f"# Title\n\n{BEGIN}\n\n### few on 4x4:v100: 3 jobs")
    assert first.endswith(f"\n\n{END}\n\nThe end.\n")
    assert "old" not in first
    main(command)
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


def test_a_page_without_marks_is_refused_before_the_long_work(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.md"
    page.write_text("no marks")
    assert main(["few.csv@4x4:v100", "--into", str(page)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "expected the marks" in line
    assert page.read_text() == "no marks"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["few.csv"], "expected WORKLOAD@CLUSTER"),
        (["@4x4"], "expected WORKLOAD@CLUSTER"),
        (["few.csv@"], "expected WORKLOAD@CLUSTER"),
        (["few.csv@phily"], "'philly'"),
        (["none.csv@4x4"], "no such file"),
        (["few.csv@4x4", "--jobs", "0"], "jobs 0: expected 1 or more"),
        (["few.csv@4x4", "--into", "none.md"], "none.md: cannot be read"),
    ],
)
def test_a_survey_that_cannot_be_is_refused_in_one_line(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("\n") == 1
    assert words in said.err
