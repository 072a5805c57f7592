"""Results beside each other: what is taken, what is refused, and what the page says of it."""

from pathlib import Path

import polars as pl
import pytest

from gpuyard.dashboard.compare.gathering import gather, of_policies, on_windows
from gpuyard.errors import InputError
from gpuyard.report.pareto import unbeaten
from support.report_cases import EXACT, compared, jobs_with_names, simulated

from .conftest import Visit, page_data


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("compare")
    simulated(root / "four", ("sjf+easy", "fifo+easy"))
    simulated(root / "six", ("sjf+easy", "fifo+easy"), cluster="6x4:v100")
    simulated(root / "noisy", ("sjf+easy",), config=EXACT.model_copy(update={"estimates": "noisy"}))
    simulated(root / "others", ("sjf+easy",), jobs=jobs_with_names(200, seed=5))
    compared().write(root / "windows")
    return root


def test_results_on_other_clusters_are_named_after_them(site: Path) -> None:
    found, notes = gather([site / "four", site / "six"])
    labels = {entry.label: entry.name for entry in found.policies}
    assert set(labels) == {"sjf+easy", "fifo+easy", "sjf+easy on 6x4:v100", "fifo+easy on 6x4:v100"}
    assert found.mean("sjf+easy on 6x4:v100", "mean_wait_s") < found.mean("sjf+easy", "mean_wait_s")
    assert labels["sjf+easy on 6x4:v100"] in found.schedules
    assert "different clusters" in notes[0]


def test_results_with_other_information_are_named_after_it(site: Path) -> None:
    found, _ = gather([site / "four", site / "noisy"])
    assert any("estimates noisy" in entry.label for entry in found.policies)


def test_results_over_other_jobs_are_refused(site: Path) -> None:
    with pytest.raises(InputError, match="different workloads"):
        gather([site / "four", site / "others"])


def test_some_windows_are_those_windows_alone(site: Path) -> None:
    whole, _ = gather([site / "windows"])
    part = on_windows(whole, 3, 7)
    name = whole.policies[0].name
    assert part.values(name).tolist() == whole.values(name)[2:7].tolist()
    assert set(part.classes["window"]) <= set(part.setting.windows)
    assert on_windows(whole, 1, 12) is whole
    with pytest.raises(InputError, match="1 to 12"):
        on_windows(whole, 5, 13)


def test_the_reference_stays_whatever_policies_are_chosen(site: Path) -> None:
    whole, _ = gather([site / "windows"])
    kept = of_policies(whole, ["sjf+easy"])
    assert {entry.label for entry in kept.shown} == {"sjf+easy", "fifo+easy"}


def test_what_no_other_beats_on_both() -> None:
    points = [(1.0, 5.0), (2.0, 3.0), (2.0, 4.0), (3.0, 3.0), (3.0, 1.0)]
    assert unbeaten(points, (1, 1)) == [True, True, False, False, True]
    assert unbeaten([(1.0, 0.5), (1.0, 0.9)], (1, -1)) == [False, True]
    assert unbeaten([(1.0, 1.0), (1.0, 1.0)], (1, 1)) == [True, True]


def test_the_page_shows_what_its_address_asks_for(visit: Visit, site: Path) -> None:
    client = visit(site)
    address = "/compare?results=0/windows&metric=mean_wait_s&classes=gpus&first=2&last=9&policy=sjf%2Beasy"
    data = page_data(client.get(address).text)
    assert {"pareto", "change", "windows", "by-gpus"} <= set(data["charts"])
    assert "by-user" not in data["charts"]
    series = data["charts"]["windows"]["series"]
    assert {one["name"] for one in series} == {"sjf+easy", "fifo+easy"}
    assert len(series[0]["x"]) == 8
    assert data["charts"]["windows"]["y"]["label"] == "mean wait"


def test_shares_of_gpus_of_different_clusters_are_not_in_one_chart(visit: Visit, site: Path) -> None:
    text = visit(site).get("/compare?results=0/four&results=0/six").text
    assert "utilisation" not in page_data(text)["charts"]
    assert "figure-utilisation" not in text
    assert "figure-queue" in text


@pytest.mark.parametrize(
    ("address", "status", "said"),
    [
        ("results=0/nothing", 404, "not there any more"),
        ("results=0/four&metric=magic", 400, "magic"),
        ("results=0/four&policy=magic", 400, "magic"),
        ("results=0/windows&first=9&last=2", 400, "windows 9 to 2"),
        ("results=0/windows&first=x", 400, "number of a window"),
        ("&".join(f"results=0/{k}" for k in range(13)), 400, "at most 12"),
    ],
)
def test_addresses_that_lead_nowhere_are_said(
    visit: Visit, site: Path, address: str, status: int, said: str
) -> None:
    answer = visit(site).get(f"/compare?{address}")
    assert (answer.status_code, said in answer.text) == (status, True)


def test_damaged_results_are_said_and_the_others_are_offered(visit: Visit, tmp_path: Path) -> None:
    simulated(tmp_path / "good", ("sjf+easy",))
    broken = simulated(tmp_path / "bad", ("sjf+easy",))
    pl.DataFrame({"policy": ["x"]}).write_parquet(broken / "windows.parquet")
    client = visit(tmp_path)
    assert "good" in client.get("/compare").text
    answer = client.get("/compare?results=0/bad")
    assert (answer.status_code, "is damaged" in answer.text) == (400, True)
