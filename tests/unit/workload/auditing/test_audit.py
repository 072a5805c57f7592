"""Every finding of an audit: a workload that has it, the numbers it gives, and one that does not."""

import json
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import polars as pl
import pytest

from gpuyard.cli import app
from gpuyard.cluster.model import Cluster, NodeGroup, parse_cluster
from gpuyard.workload import Step, Workload, WorkloadMetadata, make_workload
from gpuyard.workload.auditing.audit import audit, audit_checks
from gpuyard.workload.auditing.demand import demand_series, oversubscription
from gpuyard.workload.auditing.fidelity import SEVERITIES, FidelityCard, FidelityFinding
from gpuyard.workload.importing import Finding, ImportReport, ImportWarning

DAY_S = 86400.0
SEPTEMBER_S = 1_598_918_400.0


def make(submit_s: Any, duration_s: Any = 10.0, gpus: Any = 1, **columns: Any) -> Workload:
    count = len(submit_s)
    epoch_s = columns.pop("epoch_s", 0.0)
    frame = {
        "submit_s": pl.Series(submit_s, dtype=pl.Float64),
        "duration_s": [float(duration_s)] * count if np.isscalar(duration_s) else list(duration_s),
        "gpus": [gpus] * count if np.isscalar(gpus) else list(gpus),
    }
    return make_workload(pl.DataFrame(frame | columns), name="jobs", epoch_s=epoch_s)


def steady(days: int = 20, per_day: int = 60, **columns: Any) -> Workload:
    """As many jobs every day, irregular within it, lasting 100 to 700 s, complete in every way."""
    count = days * per_day
    generator = np.random.default_rng(0)
    submit_s = np.sort(generator.random(count)) * days * DAY_S
    defaults: dict[str, Any] = {
        "duration_s": 100 + np.arange(count) % 601 + generator.random(count),
        "user": [f"u{k % 7}" for k in range(count)],
        "status": ["completed"] * count,
        "source_id": [str(k) for k in range(count)],
    }
    if "estimate_s" not in columns:
        columns["estimate_s"] = 1.5 * np.asarray(
            columns.get("duration_s", defaults["duration_s"]), dtype=float
        )
    merged = defaults | columns
    return make(submit_s, merged.pop("duration_s"), merged.pop("gpus", 1), **merged)


def report(**findings: Any) -> ImportReport:
    return ImportReport(format="swf", files=("a.swf",), rows_read=100, jobs=90, merged=0, **findings)


BUSY = parse_cluster("1x1")  # 60 jobs a day of 400 s: a load of 0.28
FITTING = Cluster(name="fitting", nodes=(NodeGroup(count=1, gpus=8, type="gpu"),))
OWNED = Cluster(name="owned", nodes=(NodeGroup(count=1, gpus=8, type="gpu", owner="vision"),))


def look(
    workload: Workload, cluster: Cluster | None = None, import_report: ImportReport | None = None
) -> FidelityCard:
    return audit(workload, cluster, import_report)


def with_gap() -> Workload:
    submit_s = [k * 600.0 for k in range(500)]
    return make([*submit_s, *(at + submit_s[-1] + 3 * DAY_S for at in submit_s)])


def thin_at(side: str) -> Workload:
    sparse = [2.0 * DAY_S * k for k in range(4)]  # 4 jobs in 6 days, then 20 days of 50 each
    bulk = [8 * DAY_S + k * DAY_S / 50 for k in range(1000)]
    submit_s = np.array([*sparse, *bulk])
    return make(submit_s if side == "start" else submit_s.max() - submit_s[::-1])


def censored(missing: bool) -> Workload:
    """Two jobs an hour for 10 days, every second one of 2 days; those that outlast the log are in, or not."""
    submit_s = np.arange(480) * 1800.0
    duration_s = np.where(np.arange(480) % 2 == 0, 60.0, 2 * DAY_S) + np.arange(480)
    if missing:
        kept = submit_s + duration_s < submit_s[-1]
        submit_s, duration_s = submit_s[kept], duration_s[kept]
    return make(submit_s, duration_s)


CASES: dict[str, tuple[Callable[[], FidelityCard], dict[str, Any], Callable[[], FidelityCard]]] = {
    "silence": (
        lambda: look(with_gap()),
        {"gaps": 1, "longest_s": 3 * DAY_S, "longest_from_s": 499 * 600.0},
        lambda: look(make([k * 600.0 for k in range(1000)])),
    ),
    "thin-start": (
        lambda: look(thin_at("start")),
        {"jobs_before": 4, "bulk_from_s": 8 * DAY_S},
        lambda: look(thin_at("end")),
    ),
    "thin-end": (
        lambda: look(thin_at("end")),
        {"jobs_after": 4},
        lambda: look(thin_at("start")),
    ),
    "uneven-arrivals": (
        lambda: look(make([0.0, *(1000 + k / 10 for k in range(60)), *(2000.0 * k for k in range(1, 40))])),
        {"from_s": 1000.0},
        lambda: look(make([10.0 * k for k in range(100)])),
    ),
    "rate-change": (
        lambda: look(
            make([k * DAY_S / 2 for k in range(40)] + [20 * DAY_S + k * DAY_S / 50 for k in range(900)])
        ),
        {"jobs_a_day_last_third": 50.0, "jobs_a_day_first_third": 2.0, "ratio": 25.0},
        lambda: look(steady()),
    ),
    "coarse-submit-times": (
        lambda: look(make([3600.0 * (k // 3) for k in range(90)])),
        {"grid_s": 3600.0, "share_of_jobs": 1.0, "most_at_once": 3},
        lambda: look(make([61.0 * k for k in range(90)])),
    ),
    "clamped-durations": (
        lambda: look(make([60.0 * k for k in range(100)], [min(10.0 * (k + 1), 900.0) for k in range(100)])),
        {"cap_s": 900.0, "jobs": 11, "share_of_gpu_time": 9900 / (9900 + sum(range(10, 900, 10)))},
        lambda: look(make([60.0 * k for k in range(100)], [10.0 * (k + 1) for k in range(100)])),
    ),
    "duration-spikes": (
        lambda: look(make(range(200), [3600.0 if k < 20 else 50.0 * k for k in range(200)])),
        {"spikes": 1, "jobs": 21, "where": ("1 h: 21 jobs",)},
        lambda: look(make(range(200), [50.0 * (k + 1) for k in range(200)])),
    ),
    "cut-at-end": (
        lambda: look(
            make(
                [10.0 * k for k in range(100)], [5000.0 - 10 * k if k % 10 == 0 else 5.0 for k in range(100)]
            )
        ),
        {"end_s": 5000.0, "jobs": 10},
        lambda: look(make([10.0 * k for k in range(100)], [5.0 + k for k in range(100)])),
    ),
    "missing-running-jobs": (
        lambda: look(censored(missing=True)),
        {"jobs": 1},
        lambda: look(censored(missing=False)),
    ),
    "tiny-jobs": (
        lambda: look(make(range(10), [1.0, *range(2, 11)])),
        {"jobs": 1, "share_of_jobs": 0.1},
        lambda: look(make(range(10), range(2, 12))),
    ),
    "heavy-tail": (
        lambda: look(make(range(100), [1e4, *range(1, 100)])),
        {"share_of_gpu_time": 1e4 / (1e4 + 4950), "jobs": 1},
        lambda: look(make(range(100), range(1, 101))),
    ),
    "duplicated-ids": (
        lambda: look(make(range(4), source_id=["7", "8", "7", "7"])),
        {"jobs": 2, "first": "7"},
        lambda: look(make(range(4), source_id=["7", "8", "", ""])),
    ),
    "duplicated-rows": (
        lambda: look(make([0.0, 0.0, 1.0, 2.0])),
        {"jobs": 1, "share_of_jobs": 0.25},
        lambda: look(make([0.0, 0.0, 1.0, 2.0], source_id=["a", "b", "c", "d"])),
    ),
    "wasted-work": (
        lambda: look(make(range(3), [60.0, 30.0, 10.0], status=["completed", "failed", "cancelled"])),
        {"failed_share_of_gpu_time": 0.3, "cancelled_share_of_gpu_time": 0.1},
        lambda: look(make(range(3), [97.0, 2.0, 1.0], status=["completed", "failed", "cancelled"])),
    ),
    "unknown-statuses": (
        lambda: look(make(range(4), status=["unknown", "completed", "failed", "completed"])),
        {"share_of_jobs": 0.25},
        lambda: look(steady()),
    ),
    "missing-users": (
        lambda: look(make(range(4), user=["ann", "", "", ""])),
        {"share_of_jobs": 0.75},
        lambda: look(steady()),
    ),
    "dominant-user": (
        lambda: look(make(range(4), [1.0, 1.0, 1.0, 97.0], user=["a", "b", "a", "c"])),
        {"user": "c", "share": 0.97, "of": "GPU time"},
        lambda: look(steady()),
    ),
    "few-jobs": (lambda: look(make(range(999))), {"jobs": 999}, lambda: look(make(range(1000)))),
    "no-estimates": (
        lambda: look(make(range(4), estimate_s=[5.0, None, None, None])),
        {"share_of_jobs_with_estimate": 0.25},
        lambda: look(steady()),
    ),
    "poor-estimates": (
        lambda: look(make(range(4), 100.0, estimate_s=[50.0, 300.0, 500.0, 600.0])),
        {"median_ratio": 4.0, "share_underestimated": 0.25, "share_round": 0.5},
        lambda: look(steady()),
    ),
    "estimates-equal-durations": (
        lambda: look(make(range(10), range(1, 11), estimate_s=[float(k) for k in range(1, 11)])),
        {"share_of_estimates": 1.0},
        lambda: look(steady()),
    ),
    "rejected-rows": (
        lambda: look(steady(), None, report(rejected=(Finding(reason="no GPUs", rows=10),))),
        {"rows": 10, "share_of_rows": 0.1, "reasons": ("10: no GPUs",)},
        lambda: look(steady(), None, report()),
    ),
    "import-warnings": (
        lambda: look(
            steady(),
            None,
            report(warnings=(ImportWarning(id="mig-slices", text="2 jobs had slices", remedy="look"),)),
        ),
        {"warnings": ("mig-slices",)},
        lambda: look(
            steady(), None, report(warnings=(ImportWarning(id="rejected-rows", text="many", remedy="look"),))
        ),
    ),
    "bad-times": (
        lambda: look(
            steady(),
            None,
            report(
                rejected=(Finding(reason="ends before it starts", rows=3), Finding(reason="no GPUs", rows=5)),
                repaired=(Finding(reason="duration of 0 made 1 s", rows=2),),
            ),
        ),
        {"rows": 5},
        lambda: look(steady(), None, report(rejected=(Finding(reason="no GPUs", rows=10),))),
    ),
    "repaired-rows": (
        lambda: look(steady(), None, report(repaired=(Finding(reason="GPUs rounded up", rows=7),))),
        {"rows": 7, "share_of_rows": 0.07},
        lambda: look(steady(), None, report()),
    ),
    "assumptions": (
        lambda: look(steady(), None, report(assumed=("times are UTC",))),
        {"assumptions": 1, "what": ("times are UTC",)},
        lambda: look(steady(), None, report()),
    ),
    "no-contention": (
        lambda: look(make([0.0, 100.0], [10.0, 10.0], [1, 1]), parse_cluster("1x2")),
        {"load": 0.1, "peak": 0.5, "oversubscribed_time_share": 0.0},
        lambda: look(make([0.0, 100.0], [60.0, 60.0], [1, 1]), parse_cluster("1x2")),
    ),
    "overload": (
        lambda: look(make([0.0, 100.0], [60.0, 60.0], [3, 1]), parse_cluster("1x2")),
        {"load": 1.2, "peak": 1.5, "oversubscribed_time_share": 0.6},
        lambda: look(make([0.0, 100.0], [60.0, 60.0], [2, 1]), parse_cluster("1x2")),
    ),
    "never-placeable": (
        lambda: look(make(range(3), [60.0, 20.0, 20.0], [8, 9, 1]), FITTING),
        {"jobs": 1, "first_row": 1, "share_of_gpu_time": 180 / 680},
        lambda: look(make(range(3), [60.0, 20.0, 20.0], [8, 7, 1]), FITTING),
    ),
    "awkward-gang-sizes": (
        lambda: look(make(range(5), 10.0, [1, 3, 8, 16, 12]), FITTING),
        {"share_of_jobs": 0.4, "share_of_gpu_time": 15 / 40, "sizes": ("3", "12")},
        lambda: look(make(range(5), 10.0, [1, 2, 4, 8, 16]), FITTING),
    ),
    "groups-without-nodes": (
        lambda: look(make(range(4), group=["vision", "speech", "vision", "vision"]), OWNED),
        {"share_of_jobs": 0.25, "groups": ("speech",)},
        lambda: look(make(range(4), group=["vision"] * 4), OWNED),
    ),
    "recorded-overuse": (
        lambda: look(make([0.0, 5.0], 10.0, [6, 4], recorded_start_s=[2.0, 8.0]), FITTING),
        {"peak_gpus": 10.0, "cluster_gpus": 8, "peak_s": 8.0, "share_of_time": 4 / 16},
        lambda: look(make([0.0, 5.0], 10.0, [6, 4], recorded_start_s=[2.0, 12.0]), FITTING),
    ),
    "start-before-submit": (
        lambda: look(make([0.0, 50.0, 60.0], recorded_start_s=[0.0, 20.0, 70.0])),
        {"jobs": 1, "share_of_jobs": 1 / 3, "most_s": 30.0},
        lambda: look(make([0.0, 50.0, 60.0], recorded_start_s=[0.0, 50.0, None])),
    ),
    "no-recorded-starts": (
        lambda: look(make([0.0, 50.0], recorded_start_s=[5.0, None])),
        {"jobs": 1, "share_of_jobs": 0.5},
        lambda: look(make([0.0, 50.0], recorded_start_s=[5.0, 60.0])),
    ),
    "cpu-only-jobs": (
        lambda: look(make(range(4), 10.0, [0, 0, 1, 1], cpus=[4, 0, 0, 0])),
        {"share_of_jobs": 0.5, "of_those_without_cpus": 0.5},
        lambda: look(steady()),
    ),
}


def found(card: FidelityCard, id: str) -> FidelityFinding | None:
    return next((finding for finding in card.findings if finding.id == id), None)


def test_every_check_has_a_case() -> None:
    assert set(CASES) == set(audit_checks())


@pytest.mark.parametrize("id", CASES)
def test_a_finding_is_made_with_its_numbers(id: str) -> None:
    card, numbers = CASES[id][0](), CASES[id][1]
    finding = found(card, id)
    assert finding is not None, [entry.id for entry in card.findings]
    for name, value in numbers.items():
        assert finding.numbers[name] == (pytest.approx(value) if isinstance(value, float) else value), name
    assert finding.title
    assert finding.meaning.endswith(".")
    assert finding.remedy


@pytest.mark.parametrize("id", CASES)
def test_a_workload_without_it_passes(id: str) -> None:
    card = CASES[id][2]()
    assert found(card, id) is None
    assert id in card.passed


@pytest.mark.parametrize("id", CASES)
def test_commands_that_a_finding_advises_can_be_given(id: str) -> None:
    finding = found(CASES[id][0](), id)
    assert finding is not None
    for command in re.findall(r"gpuyard (workload shape FILE .*?\.parquet)", finding.remedy):
        stand_ins = {"N": "3", "A": "1", "B": "2", "L": "0.9", "C": "4x2"}
        arguments = [stand_ins.get(word, word) for word in command.split()]
        app.parse_args(arguments, print_error=False, exit_on_error=False)


def test_a_steady_complete_workload_passes_every_check() -> None:
    card = look(steady(), parse_cluster("1x1"), report())
    assert {finding.id for finding in card.findings} == {"no-contention"}
    assert card.load == pytest.approx(0.28, rel=0.02)
    dense = look(steady(per_day=150), parse_cluster("1x1"), report())
    assert dense.findings == ()
    assert set(dense.passed) == set(audit_checks())


def test_checks_that_need_more_are_skipped_and_say_what() -> None:
    card = look(steady())
    skipped = {check.id: check.why for check in card.skipped}
    assert skipped["overload"] == "needs a cluster (--cluster)"
    assert "import report" in skipped["rejected-rows"]
    assert card.load is None
    assert card.oversubscription is None
    assert len(card.skipped) + len(card.passed) + len(card.findings) == len(audit_checks())


def test_an_imported_log_without_any_starts_is_noted() -> None:
    step = Step(name="import", settings={"format": "job-csv"})
    log = Workload(steady().frame, WorkloadMetadata(history=(step,)))
    finding = found(look(log), "no-recorded-starts")
    assert finding is not None
    assert (finding.severity, finding.numbers["share_of_jobs"]) == ("note", 1.0)


def test_overuse_tells_the_date_where_the_clock_has_one() -> None:
    log = make([0.0], 10.0, 9, recorded_start_s=[3600.0], epoch_s=SEPTEMBER_S)
    finding = found(look(log, FITTING), "recorded-overuse")
    assert finding is not None
    assert "2020-09-01 01:00" in finding.title


def test_the_most_serious_comes_first() -> None:
    card = look(make(range(3), [60.0, 20.0, 20.0], [8, 9, 1]), FITTING)
    ranks = [SEVERITIES.index(finding.severity) for finding in card.findings]
    assert ranks == sorted(ranks)
    assert card.findings[0].severity == "serious"
    assert card.count("serious") == ranks.count(0)


def test_no_contention_is_serious_if_gpus_never_run_short() -> None:
    never = found(look(make([0.0, 100.0], 10.0), parse_cluster("1x2")), "no-contention")
    at_times = found(look(make([0.0, 0.0, 0.0, 1000.0], 10.0), parse_cluster("1x2")), "no-contention")
    assert never is not None
    assert at_times is not None
    assert (never.severity, at_times.severity) == ("serious", "warning")
    assert "--load" in never.remedy


def test_gaps_before_the_bulk_are_told_once() -> None:
    assert found(look(thin_at("start")), "silence") is None


def test_dates_are_told_where_the_clock_tells_them() -> None:
    assert look(make([0.0, DAY_S], epoch_s=SEPTEMBER_S)).dates == ("2020-09-01 00:00", "2020-09-02 00:00")
    assert look(make([0.0, DAY_S])).dates is None


def test_a_lone_job_can_be_audited() -> None:
    card = look(make([0.0]), parse_cluster("1x1"))
    assert card.span_s == 0
    assert card.load is None


def test_a_card_is_json_and_back() -> None:
    card = look(thin_at("start"), parse_cluster("1x8"), report(assumed=("x",)))
    text = card.model_dump_json()
    assert "NaN" not in text
    assert FidelityCard.model_validate_json(text) == card
    assert json.loads(text)["findings"][0]["severity"] in SEVERITIES


# Demand over time


def test_demand_over_time_is_split_over_the_steps_it_falls_into() -> None:
    # Minutes: 2 GPUs from 30 s to 90 s, and 1 GPU from 120 s on.
    series = demand_series(make([0.0, 30.0, 120.0], [1.0, 60.0, 600.0], [1, 2, 1]), 4)
    assert series.step_s == 60.0
    assert series.jobs == (2, 0, 1)
    assert series.submitted == pytest.approx((121 / 240, 0.0, 600 / 240))
    assert series.in_system == pytest.approx((61 / 240, 60 / 240, 60 / 240))
    assert demand_series(make([0.0, 30.0])).gpus is None


def test_demand_has_a_bounded_number_of_steps() -> None:
    for span_s in (1.0, 3600.0, DAY_S, 30 * DAY_S, 400 * DAY_S, 4000 * DAY_S):
        assert 1 <= len(demand_series(make([0.0, span_s])).jobs) <= 201


def test_oversubscription_is_exact() -> None:
    # 3 GPUs asked for from 10 s to 20 s of 40 s, on 2.
    jobs = make([0.0, 10.0, 40.0], [20.0, 20.0, 5.0], [1, 2, 1])
    assert oversubscription(jobs, 2).peak == 1.5
    assert oversubscription(jobs, 2).time_share == 0.25
    back_to_back = make([0.0, 10.0, 20.0], [10.0, 10.0, 1.0], [2, 2, 1])
    assert oversubscription(back_to_back, 2).time_share == 0.0


def test_advice_for_a_log_without_gpus_names_no_command_that_would_fail() -> None:
    card = look(make(range(4), 10.0, [0, 0, 0, 0], cpus=[4, 4, 4, 4]), parse_cluster("1x2"))
    finding = found(card, "cpu-only-jobs")
    assert finding is not None
    assert finding.severity == "serious"
    assert "--gpus 1-" not in finding.remedy  # would leave no job
    assert "AllocTRES" in finding.remedy
    assert found(card, "no-contention") is None  # its advice, --load, needs jobs with GPUs
