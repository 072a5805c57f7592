"""Who may import whom, inside the package."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "src" / "gpuyard"

# A module imports from its own layer and those above it in this list, never from below.
LAYERS = (
    ("_core", "errors", "registry", "files", "quantities", "charts", "web_page", "run_files"),
    ("config", "cluster", "cluster_presets", "cluster_scaling", "workload"),
    ("schedule", "outcomes", "energy", "tariff", "metrics"),
    ("policies", "preparation", "simulate", "env", "network", "held_out"),
    ("serve",),
    ("progress", "runs"),
    ("learn",),
    ("evaluate",),
    (
        "dashboard",
        "terminal",
        "tables",
        "comparison",
        "explain",
        "policy_survey",
        "bench",
        "doctor",
        "demo",
        "options",
    ),
    (
        "env_tables",
        "evaluation_tables",
        "shape_options",
        "simulation_options",
        "workload_pages",
        "workload_tables",
    ),
    ("braille", "run_curves", "run_story", "run_figures"),
    ("run_panel", "run_view", "run_tables", "run_action_charts", "run_pages"),
    ("report",),
    ("training", "demo_training", "experiments"),
    (
        "cli",
        "cli_env",
        "cli_export",
        "cli_experiments",
        "cli_evaluate",
        "cli_generators",
        "cli_parts",
        "cli_policies",
        "cli_report",
        "cli_runs",
        "cli_survey",
        "cli_train",
        "cli_search",
        "cli_workload",
    ),
)
RANK = {name: rank for rank, names in enumerate(LAYERS) for name in names}
NEVER = {
    "serve": {"learn", "env"},
    "cluster": {"workload"},
}
"""Pairs that the layers alone would allow."""
TORCH_USERS = {"learn"}


def modules() -> dict[str, Path]:
    """Files by dotted name inside the package."""
    paths = (path.relative_to(PACKAGE) for path in PACKAGE.rglob("*.py"))
    return {".".join(path.with_suffix("").parts): PACKAGE / path for path in paths}


def imported(path: Path) -> set[str]:
    """Full names of everything a file imports, inside functions too."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def parts_imported(path: Path) -> set[str]:
    """Top-level modules of the package that a file imports; names of the package itself do not count."""
    parts = {name.split(".")[1] for name in imported(path) if name.startswith("gpuyard.")}
    return {part for part in parts if part in RANK or (PACKAGE / f"{part}.py").exists()}


SOURCES = {name: path for name, path in modules().items() if name != "__init__"}


def test_every_module_has_a_layer() -> None:
    unplaced = {name.split(".")[0] for name in SOURCES} - set(RANK)
    assert not unplaced, f"say in LAYERS where {unplaced} belong"


@pytest.mark.parametrize("name", sorted(SOURCES))
def test_imports_go_down_the_layers_only(name: str) -> None:
    part = name.split(".")[0]
    others = parts_imported(SOURCES[name]) - {part}
    upwards = {other for other in others if RANK[other] > RANK[part]}
    assert not upwards
    assert not others & NEVER.get(part, set())


@pytest.mark.parametrize("name", sorted(SOURCES))
def test_only_learning_needs_torch(name: str) -> None:
    if name.split(".")[0] not in TORCH_USERS:
        assert not {other for other in imported(SOURCES[name]) if other.split(".")[0] == "torch"}


def heavy_modules_after(statement: str) -> str:
    code = f"import sys\n{statement}\nprint(*{{'polars', 'numpy', 'pydantic', 'torch'}} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.split("\n")[-2]


@pytest.mark.parametrize(
    "statement",
    [
        "import gpuyard",
        "import gpuyard; gpuyard.__version__; gpuyard.register; gpuyard.InputError; dir(gpuyard)",
        "import gpuyard.cli",
        "from gpuyard.cli import main; main(['--help'])",
        "from gpuyard.cli import main; main(['simulate', '--help'])",
        "from gpuyard.cli import main; main(['workload', 'synth', '--help'])",
        "from gpuyard.cli import main; main(['workload', 'shape', '--help'])",
        "from gpuyard.cli import main; main(['policies'])",
        "from gpuyard.cli import main; main(['env', 'list', '--help'])",
        "from gpuyard.cli import main; main(['runs', 'plot', '--help'])",
        "from gpuyard.cli import main; main(['report', '--help'])",
        "from gpuyard.cli import main; main(['export', '--help'])",
        "from gpuyard.cli import main; main(['train', '--help'])",
        "from gpuyard.cli import main; main(['evaluate', '--help'])",
    ],
)
def test_what_must_be_quick_loads_nothing_heavy(statement: str) -> None:
    assert heavy_modules_after(statement) == ""


@pytest.mark.parametrize(
    "statements",
    [
        "import gpuyard; f = gpuyard.simulate; import gpuyard.simulate; g = gpuyard.simulate",
        "import gpuyard.simulate; f = gpuyard.simulate; g = gpuyard.simulate",
        "from gpuyard.simulate import simulate as f; import gpuyard; g = gpuyard.simulate",
        "from gpuyard import simulate as f; import gpuyard.simulate; g = gpuyard.simulate",
        "import gpuyard.policies.base, gpuyard.simulate as f; import gpuyard; g = gpuyard.simulate",
    ],
)
def test_gpuyard_simulate_is_the_function_however_it_is_imported(statements: str) -> None:
    check = (
        "import sys; home = sys.modules['gpuyard.simulate']; assert f is g is home.simulate and callable(g)"
    )
    subprocess.run([sys.executable, "-W", "error", "-c", f"{statements}; {check}"], check=True)


def test_public_names_are_few_and_exist() -> None:
    import gpuyard

    assert len(gpuyard.__all__) <= 15
    assert set(gpuyard.__all__) <= set(dir(gpuyard))
    for name in gpuyard.__all__:
        assert getattr(gpuyard, name) is not None
    with pytest.raises(AttributeError, match="nonsense"):
        _ = gpuyard.nonsense
