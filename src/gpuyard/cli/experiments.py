"""``gpuyard experiments``: run recipes, write the pages of results, ship and check models.

What does the work is the package ``experiments/`` of the source tree, which no installation has.
"""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, CycloptsError, Parameter

from gpuyard.cli.inputs import one_line, open_console, print_json
from gpuyard.cli.parameters import Flag, Json
from gpuyard.errors import InputError
from gpuyard.terminal.console import errors
from gpuyard.units import plural

if TYPE_CHECKING:
    from experiments.running import Experiment

Files = Annotated[
    list[Path] | None,
    Parameter(negative=(), help="Recipes, such as experiments/recipes/lublin.toml. (default: all there)"),
]
Results = Annotated[Path, Parameter(help="The folder of what was run.")]
Traces = Annotated[
    Path | None,
    Parameter(env_var="GPUYARD_TRACES", help="The folder of public traces (docs/guide/experiments.md)."),
]

RECIPES, RESULTS = Path("experiments/recipes"), Path("results")
PUBLISHED, PAGES = Path("experiments/results"), Path("docs/results")

experiments_app = App(
    name="experiments",
)


@experiments_app.command
def run(
    files: Files = None,
    /,
    *,
    traces: Traces = None,
    results: Results = RESULTS,
    until: Annotated[str | None, Parameter(help="Name of the last step to run.")] = None,
    json: Json = False,
) -> None:
    """Run experiments step by step; what has been run before is not run again.

    Example: gpuyard experiments run experiments/recipes/lublin.toml --traces traces
    """
    _open_experiments()
    from experiments.running import Experiment, check_step, run_experiment

    experiments = [Experiment.of(file, results) for file in files or _recipes()]
    console = errors()
    for experiment in experiments:  # before hours are spent on the first
        check_step(experiment, until)
        _check_options(experiment)
    for experiment in experiments:
        run_experiment(experiment, traces, lambda line: console.print(line, soft_wrap=True), until)
    known = [{"experiment": e.name, "minutes": e.minutes(), "complete": e.is_complete} for e in experiments]
    if json:
        print_json({"experiments": known})
        return
    for one in known:
        open_console().print(f"{one['experiment']}: {one['minutes']:.0f} min in all", soft_wrap=True)


@experiments_app.command
def page(
    files: Files = None,
    /,
    *,
    results: Results = RESULTS,
    published: Annotated[Path, Parameter(help="The folder of published figures.")] = PUBLISHED,
    out: Annotated[Path, Parameter(help="The folder of pages to write.")] = PAGES,
    readme: Annotated[
        Path | None, Parameter(help="A file whose table of headlines is written, too, between its marks.")
    ] = None,
    force: Annotated[
        bool, Flag, Parameter(help="Also if figures that are published now would be lost.")
    ] = False,
    json: Json = False,
) -> None:
    """Publish what was run here, and write the pages of results.

    Figures go to experiments/results/NAME.json, and pages are made of these files. An experiment of which
    nothing was run here, or not all that is published, keeps its figures; --force replaces them.

    Example: gpuyard experiments page
    """
    _open_experiments()
    from experiments.publishing import publish
    from experiments.running import Experiment

    experiments = [Experiment.of(file, results) for file in files or _recipes()]
    written = publish(experiments, published, out, readme, force=force)
    if json:
        print_json({"pages": str(out), **{name: list(names) for name, names in asdict(written).items()}})
        return
    notes = {
        "updated from what was run here": written.updated,
        "kept as published, as not all of their tables were run here (--force)": written.partly_run,
        "computed with other commands than their recipes have now": written.outdated,
        "without figures": written.missing,
    }
    console = open_console()
    console.print(f"{out}: {plural(len(written.whole), 'experiment')} with all tables", soft_wrap=True)
    for words, names in notes.items():
        if names:
            console.print(f"{words}: {', '.join(names)}", soft_wrap=True)


@experiments_app.command
def ship(
    files: Files = None,
    /,
    *,
    results: Results = RESULTS,
    out: Annotated[Path, Parameter(help="The folder of models.")] = Path("src/gpuyard/models"),
    page: Annotated[Path | None, Parameter(help="The page of models to write.")] = Path("docs/models.md"),
    json: Json = False,
) -> None:
    """Copy the models that recipes name, with a card each, to where the package has its models.

    Models of experiments of which nothing was run here stay as they are.

    Example: gpuyard experiments ship
    """
    _open_experiments()
    from experiments.models import ship_models
    from experiments.running import Experiment

    experiments = [Experiment.of(file, results) for file in files or _recipes()]
    names = ship_models(experiments, out, page)
    left = [model.name for one in experiments for model in one.recipe.model if model.name not in names]
    if json:
        print_json({"models": names, "left": left})
        return
    console = open_console()
    for name in names:
        console.print(f"{out / name}.safetensors", soft_wrap=True)
    if left:
        console.print(f"left as they are, as nothing was run here: {', '.join(left)}", soft_wrap=True)


@experiments_app.command
def check(
    names: Annotated[list[str] | None, Parameter(negative=(), help="Models. (default: all)")] = None,
    /,
    *,
    traces: Traces = None,
    models: Annotated[
        list[str] | None, Parameter(name="--model", negative=(), help="The same; repeat it.")
    ] = None,
    json: Json = False,
) -> int:
    """Evaluate the shipped models again and compare with the figures on their cards.

    Example: gpuyard experiments check bursty-order
    """
    _open_experiments()
    from experiments.checking import check_models

    checks = check_models(traces, list(dict.fromkeys([*(names or ()), *(models or ())])))
    if json:
        print_json({"checks": [one.document() for one in checks]})
    else:
        for one in checks:
            open_console().print(one.in_words(), soft_wrap=True, markup=False)
        if not checks:
            open_console().print("no models come with this gpuyard")
    return 0 if all(one.agrees is not False for one in checks) else 1


def _open_experiments() -> None:
    """Make the package of the source tree known by its name, whatever else is called so.

    Raises:
        InputError: where the source tree is not at hand.
    """
    if "experiments" in sys.modules:
        return
    folder = Path(__file__).resolve().parents[3] / "experiments"
    if not (folder / "__init__.py").is_file():
        raise InputError(
            "experiments are part of the source tree, not of the installed package; run this in a clone"
        )
    spec = importlib.util.spec_from_file_location(
        "experiments", folder / "__init__.py", submodule_search_locations=[str(folder)]
    )
    if spec is None or spec.loader is None:
        raise ImportError(f"cannot load {folder}")
    sys.modules["experiments"] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)


def _check_options(experiment: Experiment) -> None:
    """Refuse options that no command has: the last step of a recipe may come after hours of others."""
    from experiments.recipe import commands_of
    from gpuyard.cli import app

    for step in experiment.recipe.step:
        try:
            app.parse_args(list(commands_of(step)[0].arguments), exit_on_error=False, print_error=False)
        except CycloptsError as error:
            raise InputError(f"{experiment.name}: step {step.name}: {one_line(str(error))}") from None


def _recipes() -> list[Path]:
    found = sorted(RECIPES.glob("*.toml"))
    if not found:
        raise InputError(f"there are no recipes in {RECIPES}/; name the files of experiments to use")
    return found
