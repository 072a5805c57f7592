"""Policies that act in an environment: for step modes and choices that schedules of windows do not show.

Everything runs natively; torch is not needed.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Self, TypeVar

from pydantic import ValidationError

from gpuyard.errors import InputError, setting
from gpuyard.evaluate.comparison import Comparison
from gpuyard.evaluate.config import BEST, EvaluationConfig
from gpuyard.evaluate.contenders import Contender, contender_of
from gpuyard.evaluate.engine import CHOSEN_IN, Figures, Outcomes, Progress, evaluate, no_progress, ranked_by
from gpuyard.evaluate.setting import RETURN, Setting, fingerprint_of, lower_is_better
from gpuyard.evaluate.tables import window_row
from gpuyard.files import read_toml
from gpuyard.learn.config import EnvironmentSection, ValidationSection, refused
from gpuyard.learn.memory.environments import Environments
from gpuyard.network.model_file import find_model, left_behind, read_model
from gpuyard.network.policy import LearnedPolicy
from gpuyard.network.rollout import METRICS, EpisodeRunner
from gpuyard.network.sizes import NetworkSizes
from gpuyard.network.transfer import other_information
from gpuyard.observation.config import HOST_KINDS
from gpuyard.observation.episodes import DrawnJobs
from gpuyard.observation.spec import EnvModel, acting_policy
from gpuyard.policies.family import fixed_heuristics
from gpuyard.policies.grammar import PolicySpec, parse_policy
from gpuyard.policies.policy_file import TunedPolicy
from gpuyard.registry import registered, suggest
from gpuyard.runs.directory import CONFIG
from gpuyard.simulation.find import find_policy
from gpuyard.simulation.windows import (
    PARTS,
    TEST_DRAWS,
    VALIDATION_DRAWS,
    Part,
    disjoint_equivalent,
    overlapping,
)

OBSERVED = (
    "base_policy",
    "window",
    "tokens",
    "lookahead",
    "lookahead_horizon_s",
    "job_features",
    "node_features",
    "global_features",
)
"""Settings that say what a policy sees: each learned policy has its own."""
SAME = ("step_mode", "tick_s", "blocking_backfill")
"""Settings that say what actions do: the same for all."""
KNOWN = (RETURN, *METRICS)
CHOOSING = 64
"""Episodes on which the best heuristic is chosen."""
MOST_EPISODES = 100_000

Table = TypeVar("Table", EnvironmentSection, ValidationSection)
Values = dict[str, Any]
"""Of every episode, by metric."""


def evaluate_run(
    run: str | Path,
    policies: Iterable[str] = (),
    count: int = 1000,
    *,
    metric: str | None = None,
    current: str = BEST,
    all_heuristics: bool = True,
    first_draw: int | None = None,
    changes: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
) -> Comparison:
    """Compare a run's policy in the environment that it was trained in, on episodes that are new to it.

    Args:
        run: Its directory, or a model that was trained on draws.
        policies: Others to compare with: heuristics, run directories, model files.
        count: Episodes: fresh draws of its generator, or windows of the test part of its workload.
        metric: None: what the run was validated by.
        current: What differences are from: a policy, or ``best``, the heuristic that is best on validation
            episodes.
        all_heuristics: Whether to run every heuristic that can act there.
        first_draw: Seed of the first draw of a generator; None: far from those of training and validation.
        changes: Settings of the environment that are to be others, such as its ``generator``.
        progress: Told where the evaluation is.

    Raises:
        InputError: if that is no directory of a run with a model, or a policy cannot act there.
    """
    environment, validation = _settings_of(str(run), changes or {})
    if first_draw is None:
        first_draw = validation.first_draw + TEST_DRAWS - VALIDATION_DRAWS
    return evaluate_episodes(
        environment,
        [str(run), *policies],
        count,
        first_draw=first_draw,
        metric=metric or validation.metric,
        current=current,
        all_heuristics=all_heuristics,
        progress=progress,
    )


def _settings_of(source: str, changes: Mapping[str, Any]) -> tuple[EnvironmentSection, ValidationSection]:
    """Where a policy was trained, and how it was validated; other settings would need torch to be read."""
    if (Path(source) / CONFIG).is_file():
        place = str(Path(source) / CONFIG)
        document = read_toml(Path(place))
    else:
        place, document = source, dict(read_model(find_model(source)).training)
        document.pop("validation", None)  # what it reached, not how that was measured
    if document.get("algorithm") == "search":
        document = _document_of_search(source, document)
    document["environment"] = {**document.get("environment", {}), **changes}
    if left_behind(document["environment"].get("workload")):
        raise InputError(
            f"{source}: was trained on jobs that do not come with it; compare it with "
            f"{setting('on', 'JOBS')}, or make "
            "them as its card says (docs/models.md)"
        )
    return _section(EnvironmentSection, document, place), _section(ValidationSection, document, place)


def _document_of_search(source: str, stated: Mapping[str, Any]) -> dict[str, Any]:
    """A search acts in the environment of its model; what it was judged by stands in its own table."""
    usual = EvaluationConfig.model_fields["metric"].default
    return {
        "environment": read_model(find_model(source)).training.get("environment", {}),
        "validation": {"metric": stated.get("search", {}).get("metric", usual)},
    }


def _section(model: type[Table], document: Mapping[str, Any], path: str) -> Table:
    name = "environment" if model is EnvironmentSection else "validation"
    try:
        return model.model_validate(document.get(name, {}))
    except ValidationError as error:
        raise refused(error, model, path, (name,)) from None


def evaluate_episodes(
    environment: EnvironmentSection | Mapping[str, Any],
    policies: Iterable[str | LearnedPolicy],
    count: int = 1000,
    *,
    names: Sequence[int] | None = None,
    split: Part = "test",
    first_draw: int = TEST_DRAWS,
    metric: str = RETURN,
    current: str = BEST,
    all_heuristics: bool = True,
    threads: int | None = None,
    progress: Progress | None = None,
) -> Comparison:
    """Compare policies that act in an environment, on the same episodes.

    Args:
        environment: Its table in the settings of a run: ``id``, ``preset``, ``workload`` or ``generator``,
            ``cluster`` and settings of the environment. Learned policies see it as they were trained to.
        policies: Heuristics, run directories or model files.
        count: Episodes: draws of a generator, or windows of a part of the workload, evenly spaced.
        names: Which episodes, by seed or first row, instead of ``count``.
        split: Of a workload.
        first_draw: Seed of the first draw of a generator.
        metric: The return, or a metric of episodes.
        current: What differences are from: a policy, or ``best``, the heuristic that is best on validation
            episodes.
        all_heuristics: Whether to run every heuristic that can act there, to name the best in hindsight.
        threads: None: one a processor.
        progress: Told where the evaluation is.

    Raises:
        InputError: if a policy cannot act there, or would not be compared fairly.
    """
    lower_is_better(metric, KNOWN)
    if not 1 <= count <= MOST_EPISODES:
        raise InputError(f"{count:,} episodes: expected 1 to {MOST_EPISODES:,}")
    if not 0 <= first_draw < 2**63 - count:
        raise InputError(f"first draw {first_draw}: expected a seed from 0 on, below 2^63")
    if split not in PARTS:
        raise InputError(f"unknown part {split!r}{suggest(split, dict.fromkeys(PARTS))}")
    if not isinstance(environment, EnvironmentSection):
        document = {"environment": dict(environment)}
        environment = _section(EnvironmentSection, document, "the environment")
    source = _Episodes.of(environment, split, threads, metric, progress or no_progress)
    source = source.on(names if names is not None else source.names(count, first_draw))
    given = [source.contender(one) for one in policies]
    return evaluate(source, given, current=current, all_heuristics=all_heuristics)


@dataclass(frozen=True)
class _Episodes:
    """Episodes of an environment, as a source of the engine."""

    environments: Environments
    section: EnvironmentSection
    split: Part
    threads: int | None
    metric: str
    progress: Progress
    own: EnvModel
    """The environment, with one draw of it."""
    episodes: tuple[int, ...] = ()
    """Names of those that are compared on."""
    known: dict[str, Values] = field(default_factory=dict)
    """What policies reached on them."""

    @classmethod
    def of(
        cls,
        section: EnvironmentSection,
        split: Part,
        threads: int | None,
        metric: str,
        progress: Progress,
    ) -> Self:
        environments = Environments(section)
        seeds = {"generator_seeds": (0,)} if environments.draws else {}
        own = environments.model(split, **seeds)
        return cls(environments, section, split, threads, metric, progress, own)

    def on(self, episodes: Sequence[int]) -> Self:
        """The same, compared on these."""
        return replace(self, episodes=tuple(episodes), known={})

    def names(self, count: int, first_draw: int, split: str | None = None) -> list[int]:
        section = ValidationSection(windows=count, first_draw=first_draw)
        return self.environments.held_out(section, split or self.split)[1]

    def model(self, names: Sequence[int], split: str | None = None, **changes: Any) -> EnvModel:
        """The environment; draws are kept, as many policies act on each."""
        seeds = {"generator_seeds": tuple(names)} if self.environments.draws else {}
        return self.environments.model(split or self.split, **seeds, **changes)

    def contender(self, one: str | LearnedPolicy, role: Any = "given") -> Contender:
        """A policy that can act here."""
        own = self.own
        policy = find_policy(one) if isinstance(one, str) else one
        if isinstance(policy, LearnedPolicy):
            _check_same(policy, own)
            return contender_of(policy, role)
        if isinstance(policy, TunedPolicy):
            raise InputError(
                f"policy {policy.name}: has settings of its own, but in episodes those of the environment "
                f"hold; compare it on jobs ({setting('on', 'JOBS')})"
            )
        if not isinstance(policy, PolicySpec):
            raise InputError(f"policy {one!r}: expected a policy's name, a run directory or a model file")
        if own.kind not in HOST_KINDS and isinstance(one, str) and "/" not in one:
            policy = replace(policy, placement=own.policy.placement)
        acting_policy(policy.name, own.kind)
        if own.kind not in HOST_KINDS and policy.placement != own.policy.placement:
            raise InputError(
                f"policy {policy.name}: places jobs by {policy.placement}, but the environment by "
                f"{own.policy.placement}; leave the placement out"
            )
        found = contender_of(policy, role)
        # Where hosts are chosen, placements are what is compared.
        return (
            replace(found, entry=replace(found.entry, label=policy.name)) if own.kind in HOST_KINDS else found
        )

    def family(self) -> list[Contender]:
        """Every heuristic that can act here."""
        own = self.own
        if own.kind in HOST_KINDS:
            specs = [
                replace(own.policy, backfill="greedy", placement=rule)
                for rule in registered("placement")
                if rule not in ("milp", "random")
            ]
        else:
            specs = fixed_heuristics(own.cluster, own.config.simulated, own.policy.placement)
            if own.config.step_mode == "blocking":  # the order alone decides there
                specs = [spec for spec in specs if spec.backfill == "strict"]
        return [self.contender(spec.name, "family") for spec in specs if _can_act(spec, own)]

    def preempting(self) -> list[Contender]:
        """None: environments do not preempt."""
        return []

    def slower(self, ranked: Sequence[str]) -> list[Contender]:
        """None: backfills that take long are in the family."""
        return []

    def ranked(self, contenders: Sequence[Contender], stage: str, *, validation: bool = False) -> Figures:
        if validation:
            other = CHOSEN_IN[self.split][-1]
            names = self.names(CHOOSING, VALIDATION_DRAWS, other)
            return ranked_by(self._run_all(contenders, names, self.model(names, other), stage), self.setting)
        return ranked_by(self._figures(contenders, stage), self.setting)

    def _figures(self, contenders: Sequence[Contender], stage: str) -> Figures:
        new = [one for one in contenders if one.name not in self.known]
        self.known.update(self._run_all(new, self.episodes, self._compared, stage))
        return {one.name: self.known[one.name] for one in contenders}

    def run(self, contenders: Sequence[Contender], stage: str) -> Outcomes:
        found = self._figures(contenders, stage)
        rows = [
            window_row(name, episode, {metric: column[i] for metric, column in values.items()})
            for name, values in found.items()
            for i, episode in enumerate(self.episodes)
        ]
        return Outcomes(rows)

    @cached_property
    def _compared(self) -> EnvModel:
        """The environment of the compared episodes."""
        return self.model(self.episodes)

    def _run_all(
        self, contenders: Sequence[Contender], names: Sequence[int], model: EnvModel, stage: str
    ) -> dict[str, Values]:
        found = {}
        for done, one in enumerate(contenders, start=1):
            found[one.name] = self._run(one, names, model)
            self.progress(stage, done, len(contenders))
        return found

    def _run(self, contender: Contender, names: Sequence[int], model: EnvModel) -> Values:
        """What a policy reaches on each episode.

        Args:
            contender: Who.
            names: Of the episodes.
            model: The environment for heuristics.
        """
        policy = contender.policy
        if not isinstance(policy, LearnedPolicy):
            chooser: Any = policy.name
        else:
            seen = {name: getattr(policy.model.environment, name) for name in OBSERVED}
            model = self.model(names, **seen)
            chooser = policy.network_for(NetworkSizes.of(model), model.cluster.name)
        found = EpisodeRunner(model, self.threads).run(names, chooser)
        return {RETURN: found.returns, "length": found.lengths, **found.metrics}

    @cached_property
    def setting(self) -> Setting:
        """What policies are compared on."""
        model, names = self._compared, self.episodes
        source, first = model.source, names[0]
        drawn = isinstance(source, DrawnJobs)
        if isinstance(source, DrawnJobs):
            sample = source.draw(first)[0]
            per_window, jobs, name = len(sample), 0, source.generator.name
        else:
            sample, per_window, jobs = source.workload, source.jobs, len(source.workload)
            name = sample.metadata.name
        block = 1 if drawn else overlapping(names, per_window)
        disjoint = float(len(names)) if drawn else disjoint_equivalent(names, per_window)
        own_cluster = drawn and source.cluster is None
        return Setting(
            workload=name,
            jobs=jobs,
            fingerprint=fingerprint_of(sample),
            cluster={} if own_cluster else model.cluster.model_dump(mode="json", exclude_none=True),
            information=model.config.simulated.model_dump(mode="json"),
            part=self.split,
            kind="episodes",
            windows=names,
            jobs_per_window=per_window,
            block=block,
            disjoint=disjoint,
            metric=self.metric,
            lower_is_better=lower_is_better(self.metric, KNOWN),
            environment=self.section.model_dump(mode="json", exclude_none=True),
        )


def _can_act(spec: PolicySpec, model: EnvModel) -> bool:
    """Whether a heuristic can act in an environment: tried on its first episode."""
    first = 0 if model.draws else model.episode_rows[0]
    try:
        acting_policy(spec.name, model.kind)
        EpisodeRunner(model, 1).run([first], spec.name)
    except InputError:
        return False
    return True


def _check_same(policy: LearnedPolicy, own: EnvModel) -> None:
    """Refuse a learned policy that acts otherwise, or knows other things, than this environment says."""
    trained = policy.model
    differences = other_information(policy.model, own.config.simulated)
    if trained.kind != own.kind:
        differences.append(f"is for {trained.kind}, but is compared in {own.kind}")
    for name in SAME:
        was, now = getattr(trained.environment, name), getattr(own.config, name)
        if was != now and (name != "tick_s" or own.config.step_mode == "tick"):
            differences.append(f"was trained with {name} {was}, but runs with {now}")
    base = parse_policy(trained.environment.base_policy_of(trained.kind))
    if own.kind in HOST_KINDS and (base.order, base.backfill) != (own.policy.order, own.policy.backfill):
        differences.append(f"takes jobs by {base.name}, but is compared where they come by {own.policy.name}")
    if own.kind not in HOST_KINDS and base.placement != own.policy.placement:
        differences.append(f"places jobs by {base.placement}, but is compared with {own.policy.placement}")
    if differences:
        raise InputError(
            f"policy {policy.name}: {differences[0]}; compare it under the same, or train it anew"
        )
