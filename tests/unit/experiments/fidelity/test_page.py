from experiments.fidelity.comparison import Fidelity
from experiments.fidelity.forecast import Forecast
from experiments.fidelity.page import Findings, page

WHOLE = Fidelity(
    load=0.8,
    policy="fifo",
    jobs=600,
    close=0.75,
    rank_correlation=0.8,
    real_mean_wait_s=5.0,
    simulated_mean_wait_s=11.0,
    median_error_s=2.0,
    p90_error_s=9.0,
    waited=20,
    close_of_waited=0.5,
    same_nodes=0.25,
)
AHEAD = Forecast(load=0.8, policy="fifo", ahead_s=10, starts=99, close=0.9, waiting=0, close_of_waiting=None)
FOUND = Findings(slurm="slurm-wlm 22.05.8", exact_times=True, whole=[WHOLE], again=[WHOLE], ahead=[AHEAD])


def test_the_page_has_a_row_per_record() -> None:
    lines = page(FOUND).splitlines()
    assert (
        lines.count("| 0.8 | 600 | 75.0 % | 50.0 % of 20 | 0.8000 | 5.0 s | 11.0 s | 2.200 | 25.0 % |") == 2
    )
    assert "| 0.8 | 10 s | 99 | 90.0 % | - |" in lines


def test_prose_is_wrapped_and_names_version_and_policy() -> None:
    text = page(FOUND)
    assert [line for line in text.splitlines() if len(line) > 100 and not line.startswith("|")] == []
    assert "slurm-wlm 22.05.8" in text
    assert "`fifo`" in text


def test_findings_read_back_as_they_were_written() -> None:
    assert Findings.model_validate_json(FOUND.model_dump_json()) == FOUND
