"""Policies on windows of a log, or on draws of a generator, that nothing was chosen by."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, replace

from gpuyard.cluster.model import Cluster
from gpuyard.config import AUTO, GuardConfig, SimulationConfig
from gpuyard.errors import InputError, setting
from gpuyard.evaluate.comparison import Comparison
from gpuyard.evaluate.config import EvaluationConfig
from gpuyard.evaluate.contenders import checked, find_contenders
from gpuyard.evaluate.engine import CHOSEN_IN, Progress, no_progress
from gpuyard.evaluate.setting import Setting, fingerprint_of, lower_is_better
from gpuyard.evaluate.window_source import MOST_JOBS_FOR_SLOWER, WindowSource
from gpuyard.native.information import informed
from gpuyard.network.policy import LearnedPolicy
from gpuyard.policies.base import RECORDED
from gpuyard.policies.family import SLOWER_BACKFILLS, can_run
from gpuyard.policies.grammar import DEFAULT_PLACEMENT, PolicySpec
from gpuyard.policies.policy_file import parse_rules
from gpuyard.simulation.busy import BusyTest, find_margins
from gpuyard.simulation.find import current_policy, find_policy
from gpuyard.simulation.recorded_start import RecordedCutter
from gpuyard.simulation.windows import (
    COLD,
    TEST_DRAWS,
    VALIDATION_DRAWS,
    HeldOutWindow,
    Margins,
    Part,
    WindowCutter,
    disjoint_equivalent,
    drawn_windows,
    overlapping,
    without_oversize,
)
from gpuyard.workload import Workload
from gpuyard.workload.generators.base import GeneratorConfig
from gpuyard.workload.recorded import has_recorded

Policies = Iterable[str | PolicySpec | LearnedPolicy]

TRAIN_SHARE = 2 / 3
"""Of the windows on which heuristics are chosen."""
TESTED_BY = ("fifo+easy", "sjf+easy")
"""For these policies, and what runs today, the test of two starts must agree."""
OPTIMISED = "milp"
LONG_DRAW = 40
"""Windows of the draw on which margins of draws are found."""


def evaluate_windows(
    workload: Workload,
    cluster: Cluster,
    policies: Policies,
    config: EvaluationConfig | None = None,
    simulation: SimulationConfig | None = None,
    *,
    progress: Progress | None = None,
) -> Comparison:
    """Compare policies on windows of one part of a workload.

    Args:
        workload: All jobs; parts are cut by time.
        cluster: What they run on.
        policies: Names, run directories or model files.
        config: On which windows, by which metric, against whom.
        simulation: Settings of the simulation, the same for all.
        progress: Told where the evaluation is.

    Raises:
        InputError: if a policy cannot run here, would not be compared fairly, or a part has too few jobs.
    """
    config, asked = config or EvaluationConfig(), simulation or SimulationConfig()
    simulation, progress = informed(asked, workload), progress or no_progress
    lower_is_better(config.metric)
    given, placement = find_contenders(policies, config.placement, any_placement=config.any_placement)
    begins = config.begins
    cutting = RecordedCutter if begins == "recorded" else WindowCutter
    cutter = cutting(workload, cluster, simulation, placement)
    runs = _runs(cutter.jobs, cluster, simulation, placement)
    current, why = current_policy(workload, config.current, runs), ""
    if config.current == AUTO and current == RECORDED:
        why = find_policy(RECORDED).impossible(workload, cluster, simulation) or ""
        current = current_policy(None, AUTO, runs) if why else current
    size = config.jobs_per_window
    tested = None
    if size is not None and begins != "empty":
        # What cannot be compared is refused before any work.
        some = cutter.cut(config.part, count=1, jobs=size)[0].jobs
        for one in given:
            checked(one, some, cluster, simulation, transfer=config.transfer)
        progress("how busy windows must begin", 0, 1)
        tested = _busy(cutter, cluster, simulation, config.part, current, config, size, placement)
        progress("how busy windows must begin", 1, 1)
    margins = COLD if tested is None else tested.margins

    def cut(part: Part, count: int) -> list[HeldOutWindow]:
        return cutter.cut(part, count=count, jobs=size, margins=margins)

    windows = cut(config.part, config.windows)
    rows, own = [window.name for window in windows], len(windows[0].own)
    compared_on = Setting(
        workload=workload.metadata.name,
        jobs=len(workload),
        fingerprint=fingerprint_of(workload),
        cluster=cluster.model_dump(mode="json", exclude_none=True),
        information=simulation.model_dump(mode="json"),
        part=config.part,
        kind="whole" if size is None else "windows",
        windows=tuple(rows),
        jobs_per_window=own,
        block=overlapping(rows, own),
        disjoint=disjoint_equivalent(rows, own),
        metric=config.metric,
        lower_is_better=lower_is_better(config.metric),
        left_out=len(workload) - len(cutter.jobs),
        noise_draws=config.noise_draws,
        margins=(margins.before, margins.after),
        start=begins,
        starts=None if tested is None else asdict(tested),
        guards=_guards(config),
        asked_estimates=asked.estimates,
        not_tried=_not_tried(config, len(windows[0].jobs)),
        silent=getattr(cutter, "silent", 0),
    )
    source = WindowSource(cluster, config, simulation, compared_on, windows, placement, progress)
    source.choosing = lambda: _choosing(cut, config)
    source.part = lambda: cutter.cut(config.part, count=1, jobs=None, margins=Margins(margins.before))[0]
    source.whole = source.part if config.whole and size is not None else None
    assumed = config.current == AUTO and current != RECORDED
    found = source.compare(given, current, assumed=assumed, is_recorded=has_recorded(workload))
    return found if not why else _standing_in(found, why)


def _standing_in(found: Comparison, why: str) -> Comparison:
    """A comparison whose reference stands for what was recorded, which cannot have been."""
    note = f"stands for what runs today: {why[:1].lower()}{why[1:].rstrip('.')}"
    entries = (one.noted(note) if one.name == found.reference else one for one in found.policies)
    return replace(found, policies=tuple(entries))


def _runs(
    jobs: Workload, cluster: Cluster, simulation: SimulationConfig, placement: str
) -> Callable[[PolicySpec], bool]:
    return lambda spec: can_run(jobs, cluster, replace(spec, placement=placement), simulation)


def _not_tried(config: EvaluationConfig, jobs: int) -> tuple[str, ...]:
    """Backfills that the family of heuristics goes without, on windows of so many jobs in all."""
    return SLOWER_BACKFILLS if config.all_heuristics and jobs > MOST_JOBS_FOR_SLOWER else ()


def _guards(config: EvaluationConfig) -> dict[str, float]:
    return {name: getattr(config, name) for name in GuardConfig.model_fields}


def _busy(
    cutter: WindowCutter,
    cluster: Cluster,
    simulation: SimulationConfig,
    part: Part,
    current: str,
    config: EvaluationConfig,
    jobs: int,
    placement: str,
) -> BusyTest:
    # Placements by an optimiser take too long to be tried so often, and hardly change how full a cluster is.
    where = DEFAULT_PLACEMENT if placement == OPTIMISED else placement
    names = (*TESTED_BY, current) if simulation.estimates != "none" else ()
    policies = [
        spec
        for name in dict.fromkeys(names)
        if (spec := _native(name, where)) is not None and can_run(cutter.jobs, cluster, spec, simulation)
    ]
    return find_margins(
        cutter,
        cluster,
        simulation,
        part,
        policies or [PolicySpec("fifo", "greedy", placement=where)],
        jobs=jobs,
        placement=where,
        metric=config.metric,
        threads=config.threads,
    )


def _native(name: str, placement: str) -> PolicySpec | None:
    """A policy that windows are run with by the thousand; None of a model or what the log recorded."""
    try:
        spec = replace(parse_rules(name), placement=placement)
    except InputError:
        return None
    return None if spec.preempts else spec


def _choosing(
    cut: Callable[[Part, int], list[HeldOutWindow]], config: EvaluationConfig
) -> list[HeldOutWindow]:
    """Windows of other parts, on which heuristics are chosen."""
    parts = CHOSEN_IN[config.part]
    if len(parts) == 1:
        return cut(parts[0], config.choosing_windows)
    first = max(1, round(TRAIN_SHARE * config.choosing_windows))
    counts = (first, max(1, config.choosing_windows - first))
    return [window for part, count in zip(parts, counts, strict=True) for window in cut(part, count)]


def evaluate_draws(
    generator: GeneratorConfig,
    cluster: Cluster,
    policies: Policies,
    config: EvaluationConfig | None = None,
    simulation: SimulationConfig | None = None,
    *,
    progress: Progress | None = None,
) -> Comparison:
    """Compare policies on fresh draws of a generator, which are independent of each other.

    Args:
        generator: Its settings; seed and, if the configuration says so, number of jobs are replaced.
        cluster: What jobs run on.
        policies: Names, run directories or model files.
        config: How many draws of how many jobs, by which metric, against whom.
        simulation: Settings of the simulation, the same for all.
        progress: Told where the evaluation is.

    Raises:
        InputError: if a policy cannot run here, or would not be compared fairly.
    """
    config, asked = config or EvaluationConfig(), simulation or SimulationConfig()
    if config.jobs_per_window is not None:
        generator = generator.model_copy(update={"jobs": config.jobs_per_window})
    if config.begins == "recorded":
        raise InputError(
            f"{setting('window_start', 'recorded')}: draws of a generator have no record of what ran before "
            f"them; use {setting('window_start', 'busy')}, or compare on a log"
        )
    given, placement = find_contenders(policies, config.placement, any_placement=config.any_placement)
    first = TEST_DRAWS if config.first_draw is None else config.first_draw
    some = generator.model_copy(update={"seed": first}).generate().workload
    known = informed(asked, some)
    current = current_policy(None, config.current, _runs(some, cluster, known, placement))
    tested = None
    if config.begins != "empty" and generator.is_steady:
        tested = _busy_draws(generator, cluster, known, current, config, placement)
    margins = COLD if tested is None else tested.margins

    def runnable(drawn: Sequence[HeldOutWindow]) -> list[HeldOutWindow]:
        return [without_oversize(one, cluster, known, placement) for one in drawn]

    drawn = drawn_windows(generator, first, config.windows, margins)
    windows = runnable(drawn)
    compared_on = Setting(
        workload=generator.name,
        jobs=0,
        fingerprint=fingerprint_of(drawn[0].jobs),
        cluster=cluster.model_dump(mode="json", exclude_none=True),
        information=known.model_dump(mode="json"),
        part=config.part,
        kind="draws",
        windows=tuple(window.name for window in windows),
        jobs_per_window=len(drawn[0].own),
        block=1,
        disjoint=float(len(windows)),
        metric=config.metric,
        lower_is_better=lower_is_better(config.metric),
        left_out=sum(len(one.own) for one in drawn) - sum(len(one.own) for one in windows),
        noise_draws=config.noise_draws,
        margins=(margins.before, margins.after),
        start=config.begins,
        starts=None if tested is None else asdict(tested),
        guards=_guards(config),
        asked_estimates=asked.estimates,
        not_tried=_not_tried(config, len(windows[0].jobs)),
    )
    source = WindowSource(cluster, config, known, compared_on, windows, placement, progress or no_progress)
    source.choosing = lambda: runnable(
        drawn_windows(generator, VALIDATION_DRAWS, config.choosing_windows, margins)
    )
    return source.compare(given, current, assumed=config.current == AUTO)


def _busy_draws(
    generator: GeneratorConfig,
    cluster: Cluster,
    simulation: SimulationConfig,
    current: str,
    config: EvaluationConfig,
    placement: str,
) -> BusyTest:
    """What margins draws need, found on one long draw."""
    jobs = generator.jobs
    long = generator.model_copy(update={"jobs": LONG_DRAW * jobs, "seed": VALIDATION_DRAWS - 1})
    settings = simulation.model_copy(update={"oversize": "drop"})
    cutter = WindowCutter(long.generate().workload, cluster, settings, placement)
    return _busy(cutter, cluster, settings, "all", current, config, jobs, placement)
