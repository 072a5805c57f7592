"""Plug-ins: installed packages with an entry point, and files named on the command line."""

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from gpuyard import registry
from gpuyard.errors import InputError
from support.paths import ROOT

TEMPLATE = ROOT / "examples" / "plugin"
ORDER = 'import gpuyard as gy\ngy.register("order", "{name}")(lambda queue: queue["wait_s"])\n'


def gpuyard(*arguments: object, **variables: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "import sys; from gpuyard.cli import main; sys.exit(main())"]
    words = [*command, *map(str, arguments)]
    return subprocess.run(words, capture_output=True, text=True, env=os.environ | variables, timeout=120)


def installed(directory: Path, name: str, entry_points: dict[str, str]) -> None:
    """What ``pip install`` writes next to a package."""
    records = directory / f"{name.replace('-', '_')}-0.1.0.dist-info"
    records.mkdir()
    (records / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 0.1.0\n")
    lines = [f"{point} = {target}" for point, target in entry_points.items()]
    (records / "entry_points.txt").write_text("\n".join(["[gpuyard.plugins]", *lines, ""]))


def test_the_template_adds_an_order_and_a_metric(tmp_path: Path) -> None:
    project = tomllib.loads((TEMPLATE / "pyproject.toml").read_text())["project"]
    installed(tmp_path, project["name"], project["entry-points"]["gpuyard.plugins"])
    path = os.pathsep.join([str(tmp_path), str(TEMPLATE / "src")])
    done = gpuyard("simulate", "demo", "--policy", "impatient+easy", "--json", PYTHONPATH=path)
    assert done.returncode == 0, done.stderr
    (result,) = [one for one in json.loads(done.stdout)["results"] if "impatient" in one["policy"]]
    assert 0 < result["metrics"]["patient_share"] < 1
    listed = gpuyard("doctor", PYTHONPATH=path).stdout
    assert "gpuyard-patience 0.1.0" in listed
    assert "order impatient" in listed


def test_a_package_that_fails_is_reported_and_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "half.py").write_text(ORDER.format(name="half-done") + "raise OSError('no disk')\n")
    installed(tmp_path, "half", {"half": "half"})
    done = gpuyard("policies", PYTHONPATH=str(tmp_path))
    assert (done.returncode, "half-done" in done.stdout) == (0, False)
    assert done.stderr == "note: plug-in half of half 0.1.0 is left out: OSError: no disk\n"
    checked = gpuyard("doctor", "--json", PYTHONPATH=str(tmp_path))
    (row,) = [row for row in json.loads(checked.stdout)["checks"] if row["name"] == "plug-in half"]
    assert (checked.returncode, row["status"], row["required"]) == (0, "broken", False)


def test_a_file_is_loaded_and_so_are_several(tmp_path: Path) -> None:
    files = [tmp_path / f"{name}.py" for name in ("one", "two")]
    for file in files:
        file.write_text(ORDER.format(name=f"by-{file.stem}"))
    done = gpuyard("policies", "--plugin", files[0], f"--plugin={files[1]}")
    assert done.returncode == 0, done.stderr
    assert "by-one" in done.stdout
    assert "by-two" in done.stdout


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('import gpuyard as gy\ngy.register("ordre", "x")', "nothing is registered as 'ordre'; did you mean"),
        (ORDER.format(name="sjf"), "'sjf' is registered already"),
        ('import gpuyard as gy\ngy.register("backfill", "x")', "is a rule of the native core"),
        ("def f(:", "SyntaxError"),
        (None, "there is no such Python file"),
    ],
)
def test_a_file_that_cannot_be_loaded_ends_the_command(tmp_path: Path, text: str | None, told: str) -> None:
    file = tmp_path / "mine.py"
    if text is not None:
        file.write_text(text)
    done = gpuyard("--plugin", file, "simulate", "demo", "--policy", "sjf")
    assert done.returncode == 2
    assert str(file) in done.stderr
    assert told in done.stderr


def test_unknown_kinds_are_refused_with_what_is_close() -> None:
    with pytest.raises(InputError, match="did you mean 'placement'"):
        registry.register("placment", "x")
