"""What is quick to load stays quick, and the public names exist."""

import subprocess
import sys

import pytest


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
