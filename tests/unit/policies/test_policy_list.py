"""gpuyard policies: the list of rules."""

import json

import pytest

from gpuyard.registry import registered
from support.command_line import Run, runner

KINDS = ("order", "backfill", "placement")


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a command line: exit code, standard output, standard error."""
    monkeypatch.setenv("COLUMNS", "200")
    return runner(capfd, "policies")


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
