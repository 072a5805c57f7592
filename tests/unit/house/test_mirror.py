"""The tests of units lie as the package does: a reader of one finds the other."""

from support.paths import ROOT

UNITS = ROOT / "tests" / "unit"
OWN = {"house", "reference"}
"""Tests of the repository as a whole, and of the second implementation in tests/reference."""
BESIDE = {"experiments"}
"""Packages that lie beside src."""


def test_every_folder_of_unit_tests_is_a_folder_of_the_package() -> None:
    folders = {path.parent.relative_to(UNITS) for path in UNITS.rglob("test_*.py")}
    roots = {str(folder): ROOT if folder.parts[:1] and folder.parts[0] in BESIDE else ROOT / "src" / "gpuyard"
             for folder in folders if str(folder) not in OWN}  # fmt: skip
    assert [folder for folder, root in roots.items() if not (root / folder).is_dir()] == []


def test_helpers_of_tests_lie_in_support_and_not_among_the_tests_of_units() -> None:
    others = [path for path in UNITS.rglob("*.py") if not path.name.startswith(("test_", "conftest"))]
    assert others == []
