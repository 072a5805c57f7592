"""Algorithms as they are registered: all have what a run needs, and search is found without torch."""

import ast
import inspect
import subprocess
import sys
import textwrap

import pytest
from pydantic import BaseModel

from gpuyard.errors import InputError
from gpuyard.learn import algorithm as algorithm_module
from gpuyard.learn import config, rates
from gpuyard.learn.algorithm import Algorithm, algorithm_names, find_algorithm
from gpuyard.learn.off_policy import OffPolicyConfig
from gpuyard.learn.presets import train_presets

NAMES = list(algorithm_names())
SECTIONS = [one for one in vars(config).values() if isinstance(one, type) and issubclass(one, config.Section)]


def test_all_algorithms_are_found_by_the_names_of_their_files() -> None:
    assert set(NAMES) == {"clone", "d3qn", "evolve", "ppo", "sac", "search"}


@pytest.mark.parametrize("name", NAMES)
def test_an_algorithm_has_what_a_run_needs(name: str) -> None:
    algorithm = find_algorithm(name)
    assert issubclass(algorithm, Algorithm)
    assert algorithm.summary
    assert "\n" not in algorithm.summary
    assert algorithm.settings() == algorithm.settings.model_validate({}), "every setting has a default"
    assert algorithm.unit in ("sample", "episode", "generation")


@pytest.mark.parametrize("name", NAMES)
def test_settings_of_every_algorithm_read_back_equal_from_their_document(name: str) -> None:
    tables = {"algorithm": name, "environment": {"workload": "demo", "cluster": "4x8"}}
    first = config.read_config(tables)
    again = config.read_config(first.to_document())
    assert again.to_document() == first.to_document()
    assert again.settings == first.settings


def test_an_unknown_algorithm_is_refused_with_what_is_close() -> None:
    with pytest.raises(InputError, match="unknown algorithm 'sack'; did you mean 'sac'"):
        find_algorithm("sack")


def test_an_algorithm_without_a_loop_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    class Idle(Algorithm):
        summary = "Trains nothing."

    monkeypatch.setattr(algorithm_module, "lookup", lambda *_, **__: Idle)
    with pytest.raises(InputError, match="algorithm idle: Idle has no loop; define its class method loop"):
        find_algorithm("idle")


@pytest.mark.parametrize(
    "model",
    [*(find_algorithm(name).settings for name in NAMES), OffPolicyConfig, *SECTIONS, rates.Schedule],
    ids=lambda model: model.__name__,
)
def test_every_setting_is_documented_where_it_is_declared(model: type[BaseModel]) -> None:
    tree = ast.parse(textwrap.dedent(inspect.getsource(model))).body[0]
    assert isinstance(tree, ast.ClassDef)
    undocumented = []
    for line, following in zip(tree.body, [*tree.body[1:], None], strict=True):
        if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name):
            said = isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant)
            if not said and line.target.id in model.model_fields:
                undocumented.append(line.target.id)
    assert not undocumented


def test_a_search_is_prepared_and_run_without_torch() -> None:
    code = """
import sys
sys.modules["torch"] = None  # importing it fails
from pathlib import Path
import tempfile
from gpuyard.learn.process.worker import main
from gpuyard.learn.settings import assemble
own = {"train_windows": 2, "validation_windows": 2, "jobs_per_window": 32, "exponents": [1.0],
       "express_t0_s": [], "express_k": [], "first_windows": 2, "refinements": 0, "generations": 1,
       "population": 4, "windows_per_generation": 2}
config = assemble("search", {"environment": {"workload": "demo"}, "search": own})
with tempfile.TemporaryDirectory() as folder:
    (Path(folder) / "config.toml").write_text(config.to_toml())
    code = main([folder])
    print(code, *sorted(path.name for path in Path(folder).iterdir()))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [
        "0",
        "best.safetensors",
        "checkpoint.safetensors",
        "config.toml",
        "last.safetensors",
        "progress.jsonl",
        "search.json",
    ]


def test_presets_name_known_algorithms() -> None:
    for preset in train_presets().values():
        assert set(preset.own) <= set(NAMES)


@pytest.mark.parametrize("name", ["ppo", "evolve"])
def test_training_without_torch_names_what_to_install(name: str) -> None:
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "from gpuyard.cli import main\n"
        f"sys.exit(main(['train', '{name}', '--preset', 'bursty', '--steps', '64']))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    told = f"error: train {name} needs torch: pip install 'gpuyard[learn]' (search needs none)\n"
    assert (done.returncode, done.stderr) == (2, told)
