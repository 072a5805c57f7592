"""Who may import whom: by folder, transitively, wherever in a file the import stands."""

import ast
import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import TypeGuard

import pytest

from support.paths import ROOT

PACKAGE = ROOT / "src" / "gpuyard"

# A folder imports from its own line and from those above it in this list, never from below.
LAYERS = (
    ("_core", "errors", "registry", "plugins", "config", "files", "units"),
    ("cluster", "workload"),
    ("predict", "policies"),
    ("native", "metrics"),
    ("runs", "observation"),
    ("network",),
    ("simulation",),
    ("env", "serve"),
    ("scale", "testing"),
    ("learn",),
    ("evaluate", "calibrate"),
    ("report", "terminal"),
    ("dashboard",),
    ("cli",),
)
RANK = {name: rank for rank, names in enumerate(LAYERS) for name in names}
NEVER_REACHED_BY_SERVE = ("gymnasium.", "torch.", "gpuyard.learn.", "gpuyard.env.")
MOST_FILES = 16
ONE_FILE_PER_FORMAT = "workload.readers"
DOTTED = re.compile(r"gpuyard(\.\w+)+")


def _modules() -> dict[str, Path]:
    """Files by dotted name; a folder's ``__init__`` has the folder's name."""
    found = {}
    for path in PACKAGE.rglob("*.py"):
        parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


MODULES = _modules()
FOLDERS = sorted(name for name, path in MODULES.items() if path.name == "__init__.py" and name != "gpuyard")


def _known(name: str) -> str:
    """The module that a dotted name leads to: names inside a module are cut off."""
    while name not in MODULES and "." in name and name.startswith("gpuyard."):
        name = name.rpartition(".")[0]
    return name


def _is_for_types_only(node: ast.AST) -> TypeGuard[ast.If]:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def _nodes(tree: ast.AST) -> list[ast.AST]:
    """All nodes but those that only type checkers see."""
    found, todo = [], [tree]
    while todo:
        node = todo.pop()
        found.append(node)
        todo += node.orelse if _is_for_types_only(node) else list(ast.iter_child_nodes(node))
    return found


@cache
def imports(module: str) -> frozenset[str]:
    """What a module imports: at its top, inside functions, and by names in strings (``import_module``)."""
    names: set[str] = set()
    for node in _nodes(ast.parse(MODULES[module].read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}: relative import"
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            named = DOTTED.match(node.value)
            names |= {named[0]} if named and _known(named[0]) != "gpuyard" else set()
    found = {_known(name) for name in names}
    # Importing a module runs the ``__init__`` of its folders first.
    around = {name.rpartition(".")[0] for name in found | {module} if name.startswith("gpuyard.")}
    return frozenset((found | around) - {module, "gpuyard"})


@cache
def reached(module: str) -> frozenset[str]:
    """Everything that is imported when a module is, and whatever it does then."""
    found: set[str] = set()
    todo = [module]
    while todo:
        new = {name for name in imports(todo.pop()) if name not in found}
        found |= new
        todo += [name for name in new if name in MODULES]
    return frozenset(found)


def folder(module: str) -> str:
    """The part of the package that a module belongs to."""
    return module.split(".")[1]


INSIDE = sorted(name for name in MODULES if name != "gpuyard")


def test_every_folder_has_a_layer() -> None:
    unplaced = {folder(name) for name in INSIDE} - set(RANK)
    assert not unplaced, f"say in LAYERS where {unplaced} belong"


@pytest.mark.parametrize("module", INSIDE)
def test_imports_go_down_the_layers_only(module: str) -> None:
    others = {name for name in reached(module) if name.startswith("gpuyard.")}
    upwards = {name for name in others if RANK[folder(name)] > RANK[folder(module)]}
    assert not upwards


def test_no_two_folders_import_each_other() -> None:
    edges = {(folder(a), folder(b)) for a in INSIDE for b in imports(a) if b in MODULES}
    assert not {(a, b) for a, b in edges if a < b and (b, a) in edges}


@pytest.mark.parametrize("part", ["serve", "simulation", "network", "observation", "native", "policies"])
def test_serve_and_what_it_stands_on_reach_neither_environments_nor_learning(part: str) -> None:
    modules = [name for name in INSIDE if folder(name) == part]
    assert modules
    for module in modules:
        heavy = {name for name in reached(module) if f"{name}.".startswith(NEVER_REACHED_BY_SERVE)}
        assert not heavy, f"{module} reaches {heavy}"


@pytest.mark.parametrize("module", INSIDE)
def test_only_learning_needs_torch(module: str) -> None:
    if folder(module) != "learn":
        assert not {name for name in imports(module) if name.split(".")[0] == "torch"}


def test_the_top_of_the_package_holds_only_what_everything_uses() -> None:
    files = [path for path in PACKAGE.iterdir() if path.is_file() and path.suffix != ".so"]
    assert len(files) <= 10, sorted(path.name for path in files)


@pytest.mark.parametrize("name", FOLDERS)
def test_folders_can_be_taken_in_at_a_glance(name: str) -> None:
    files = list(MODULES[name].parent.glob("*.py"))
    assert len(files) <= MOST_FILES or name == f"gpuyard.{ONE_FILE_PER_FORMAT}"


@pytest.mark.parametrize("name", FOLDERS)
def test_a_folder_says_what_lives_in_it(name: str) -> None:
    assert ast.get_docstring(ast.parse(MODULES[name].read_text(encoding="utf-8")))


def heavy_modules_after(statement: str) -> str:
    # A verb's help may load pydantic, which its settings are made of.
    of_a_verb = "main" in statement and "['--help']" not in statement
    heavy = {"polars", "numpy", "torch"} | (set() if of_a_verb else {"pydantic"})
    code = f"import sys\n{statement}\nprint(*{heavy!r} & set(sys.modules))"
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
        "from gpuyard.cli import main; main(['calibrate', '--help'])",
    ],
)
def test_what_must_be_quick_loads_nothing_heavy(statement: str) -> None:
    assert heavy_modules_after(statement) == ""


def test_public_names_are_few_and_exist() -> None:
    import gpuyard

    assert len(gpuyard.__all__) <= 15
    assert set(gpuyard.__all__) <= set(dir(gpuyard))
    for name in gpuyard.__all__:
        assert getattr(gpuyard, name) is not None
    with pytest.raises(AttributeError, match="nonsense"):
        _ = gpuyard.nonsense
