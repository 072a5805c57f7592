"""What a training run is made of. Hyperparameters of algorithms are declared in the algorithms' own files."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from gpuyard.config import AUTO, GuardConfig, Seed, Whole, available_cores, refusal
from gpuyard.errors import InputError, setting
from gpuyard.files import toml_text
from gpuyard.learn.algorithm import Algorithm, algorithm_names, find_algorithm
from gpuyard.learn.rates import Schedule
from gpuyard.network.config import RULE_KINDS, NetworkConfig
from gpuyard.observation.config import EnvConfig, read_settings
from gpuyard.registry import suggest

MOST_PROCESSES = 256

Name = Annotated[str, Field(min_length=1, max_length=200)]


class Section(BaseModel):
    """One table of the configuration."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class EnvironmentSection(Section):
    """Where to train: an environment (docs/guide/environments.md) and how many of it."""

    id: Name = "gpuyard/SelectJob-v0"
    """Of Gymnasium; says what an action is."""
    preset: Name | None = None
    """Settings of an environment by name (``gpuyard env list``)."""
    workload: Name | None = None
    """Jobs to train on: a file, or the name of a built-in workload."""
    generator: Name | Mapping[str, Any] | None = None
    """What draws jobs instead: a preset, or settings of a generator."""
    cluster: Name | None = None
    """What the jobs run on, such as 64x8."""
    envs: Annotated[int, Field(ge=1, le=4096)] = 64
    """Environments stepped together, over all processes."""
    settings: Mapping[str, Any] = {}
    """Fields of ``EnvConfig``; in a file they stand next to the others."""

    @model_validator(mode="before")
    @classmethod
    def _gather_settings(cls, values: Any) -> Any:
        if not isinstance(values, Mapping):
            return values
        own = {name: value for name, value in values.items() if name not in EnvConfig.model_fields}
        rest = {name: value for name, value in values.items() if name in EnvConfig.model_fields}
        return {**own, "settings": {**values.get("settings", {}), **rest}}

    @model_validator(mode="after")
    def _check_settings(self) -> Self:
        try:
            read_settings(self.settings)
        except InputError as error:
            raise ValueError(str(error)) from None
        if "split" in self.settings:
            raise ValueError(
                "split is not for training here: it takes the first 60 % of a workload by time, validation "
                "the next 20 %; cut the workload itself to train on another part (gpuyard workload shape)"
            )
        for name in ("flatten", "invalid"):
            if name in self.settings:
                raise ValueError(f"{name} is not for training here: networks take the parts and obey masks")
        return self


class TrainingSection(Section):
    """How long, on what, and when to stop."""

    steps: Annotated[Whole, Field(ge=1, le=10**12)] = 1_000_000
    """Decisions to learn from, over all environments."""
    minutes: Annotated[float, Field(gt=0)] | None = None
    """Stop after this time even if steps are left."""
    seed: Seed = 0
    """Key of weights, episodes and draws."""
    processes: Annotated[Whole, Field(ge=1, le=MOST_PROCESSES)] | None = None
    """Each with an equal share of the environments, averaging gradients. Not given: one per processor, fewer
    if shares would not be equal."""
    device: Literal["cpu", "cuda"] = "cpu"
    """What networks are computed on."""
    accumulate: Annotated[int, Field(ge=1, le=1024)] = 1
    """Parts in which the gradient of a minibatch is computed, to save memory."""
    checkpoint_every_s: Annotated[float, Field(ge=0)] = 60.0
    """Time between checkpoints, s."""
    patience: Annotated[int, Field(ge=1)] | None = None
    """Stop after so many validations in a row without improvement. Not given: never."""
    least_improvement: Annotated[float, Field(ge=0)] = 0.0
    """By how much a score must rise to count as better."""
    target: float | None = None
    """Stop when the validation's score reaches this."""


class ValidationSection(Section, GuardConfig):
    """Held-out windows (or draws) on which the policy is judged from time to time.

    Limits on waits hold for windows of a workload in step mode ``instant``, over all jobs: the mean of the
    windows' 99th percentiles and the longest wait of all, against what runs today on the same windows.
    """

    every_steps: Annotated[int, Field(ge=1)] | None = None
    """None: ten times in the course of training."""
    windows: Annotated[int, Field(ge=1, le=100_000)] = 24
    """Evenly spaced over the validation part of the workload; of a generator, so many draws."""
    first_draw: Seed = 2**62
    """Of a generator: the first seed of its validation draws; training never comes near it by chance."""
    metric: Name = "return"
    """What is judged: the return, or a metric of an episode such as mean_bounded_slowdown."""
    average: Literal["mean", "geometric"] | None = None
    """Over windows; None: the mean of returns, the geometric mean of everything else."""
    heuristics: tuple[Name, ...] = ()
    """Policies to compare with; none: a few usual ones."""
    current: Name = AUTO
    """What runs today, from which limits on waits are counted; auto: what the log recorded where the whole
    part is replayed, else fifo+easy, or fifo+greedy without estimates."""
    max_jct_increase: Annotated[float, Field(ge=0)] | None = None
    """Charge for a mean completion time above that of the best of ``heuristics`` by more than this share."""
    jct_of: Literal["mean", "typical"] = "mean"
    """What that limit holds for: the mean over windows, or the typical window as well, by the geometric mean
    of their ratios. A single stretch in which the heuristic does badly makes up for all others in a mean."""

    @model_validator(mode="after")
    def _check_limit(self) -> Self:
        if self.jct_of != "mean" and self.max_jct_increase is None:
            raise ValueError("jct_of has no effect without a limit; give max_jct_increase too, such as 0.02")
        return self


class WarmStartSection(Section):
    """Imitate a policy first."""

    policy: Name
    """What is imitated."""
    steps: Annotated[int, Field(ge=1)] = 100_000
    """Decisions to imitate."""


class RuleSection(Section):
    """A linear rule for ``network.residual = "rule"`` to start from (docs/contract/networks.md).

    Of the legal jobs whose gate is at least 0 the one with the largest score is started.
    """

    score: Mapping[str, float]
    """Weights of columns of ``jobs``, by name."""
    gate: Mapping[str, float] = {}
    """Weights of columns of ``jobs``, and of ``globals`` as ``globals.NAME``."""
    bias: float = 1.0
    """Of the gate; above 0 without anything else, every job passes."""

    @model_validator(mode="before")
    @classmethod
    def _join_names(cls, values: Any) -> Any:
        """``--rule.gate.globals.NAME`` and ``[rule.gate.globals]`` make a table of what is one name here."""
        gate = values.get("gate") if isinstance(values, Mapping) else None
        if not isinstance(gate, Mapping) or not isinstance(gate.get("globals"), Mapping):
            return values
        jobs = {name: weight for name, weight in gate.items() if name != "globals"}
        overall = {f"globals.{name}": weight for name, weight in gate["globals"].items()}
        return {**values, "gate": {**jobs, **overall}}


class TrainConfig(Section):
    """A training run."""

    algorithm: Name
    """Name of a file in ``gpuyard.learn.algorithms``, or of one that another package registers."""
    environment: EnvironmentSection = EnvironmentSection()
    """Where to train."""
    network: NetworkConfig = NetworkConfig()
    """What is trained (docs/contract/networks.md)."""
    training: TrainingSection = TrainingSection()
    """How long, on what, and when to stop."""
    learning_rate: Schedule = Schedule(schedule="linear", start=3e-4, end=0.0)
    """Of all optimizers, in the course of training."""
    validation: ValidationSection = ValidationSection()
    """How the policy is judged."""
    warm_start: WarmStartSection | None = None
    """A policy to imitate first; None: none."""
    rule: RuleSection | None = None
    """A rule that is written down, to start from; None: none."""
    settings: Any = None
    """Of the algorithm; in a file its table is called after it."""
    init_from: str | None = None
    """A model whose weights, or whose rule, training starts from."""

    @model_validator(mode="after")
    def _check_warm_start(self) -> Self:
        if self.warm_start is not None and not find_algorithm(self.algorithm).takes_warm_start:
            raise ValueError(
                f"warm_start does not go before {self.algorithm}; run train clone and start {self.algorithm} "
                f"with {setting('init_from')}"
            )
        return self

    @model_validator(mode="after")
    def _check_rule(self) -> Self:
        if self.rule is not None and not (self.network.residual == "rule" or self.network.kind in RULE_KINDS):
            raise ValueError("rule has no effect without network.residual = 'rule'")
        if self.rule is not None and self.init_from is not None:
            raise ValueError("give a rule, or a model to start from by init_from, not both")
        return self

    @property
    def every_steps(self) -> int:
        """Steps between validations."""
        return self.validation.every_steps or max(1, self.training.steps // 10)

    def to_document(self) -> dict[str, Any]:
        """As a file has it."""
        document = self.model_dump(mode="json", exclude_none=True, exclude={"settings"})
        document["environment"] |= document["environment"].pop("settings")
        reads = find_algorithm(self.algorithm).reads
        if reads is not None:
            tables = {name: document[name] for name in reads}
            document = {"algorithm": self.algorithm} | {
                name: {key: value for key, value in table.items() if key in reads[name]}
                for name, table in tables.items()
            }
        document[self.algorithm] = with_none_in_words(self.settings.model_dump(mode="json"))
        return document

    def to_toml(self) -> str:
        """As the text of a TOML file that reads back to an equal configuration."""
        return toml_text(self.to_document())


def read_config(document: Mapping[str, Any], source: str = "configuration") -> TrainConfig:
    """A configuration from nested tables.

    Raises:
        InputError: naming the source, the key, and what is close to an unknown one.
    """
    values, start = dict(document), f"{source}: " if source else ""
    name = str(values.get("algorithm"))
    names = algorithm_names()
    if name not in names:
        raise InputError(f"{start}algorithm {values.get('algorithm')!r}{suggest(name, names)}")
    algorithm = find_algorithm(name)
    for other in names:
        if other in values and other != name:
            raise InputError(f"{start}table {other} in a run of {name}; take it out")
    settings = values.pop(name, {})
    _check_read(values, algorithm, name, source)
    for table, usual in algorithm.defaults.items():
        values[table] = {**usual, **values.get(table, {})}
    try:
        values["settings"] = algorithm.settings.model_validate(without_words_for_none(settings))
    except ValidationError as error:
        raise refused(error, algorithm.settings, source, (name,)) from None
    _check_environment(values.get("environment"), source)
    try:
        config = TrainConfig.model_validate(values)
    except ValidationError as error:
        raise refused(error, TrainConfig, source, ()) from None
    return _resolved(algorithm.resolve(config))


def _check_read(values: Mapping[str, Any], algorithm: type[Algorithm], name: str, source: str) -> None:
    """Raise an InputError for what an algorithm does not read; most read everything."""
    if algorithm.reads is None:
        return
    start = f"{source}: " if source else ""
    known = dict.fromkeys((*algorithm.reads, name))
    for table, entries in values.items():
        if table != "algorithm" and table not in known:
            raise InputError(f"{start}{table} has no meaning for {name}{suggest(table, known)}")
        keys = dict.fromkeys(sorted(algorithm.reads.get(table, ())))
        for key in entries if isinstance(entries, Mapping) else ():
            if key not in keys:
                raise InputError(f"{start}{table}.{key} has no meaning for {name}{suggest(key, keys)}")


def _check_environment(table: Any, source: str) -> None:
    """Settings of the environment are reported as any other: with their place and their value."""
    if not isinstance(table, Mapping):
        return
    try:
        EnvConfig.model_validate(
            {key: value for key, value in table.items() if key in EnvConfig.model_fields}
        )
    except ValidationError as error:
        raise refused(error, EnvConfig, source, ("environment",)) from None


def _resolved(config: TrainConfig) -> TrainConfig:
    """With what depends on the machine written down, so that a run can be repeated."""
    count, envs = config.training.processes, config.environment.envs
    even = [number for number in range(1, min(envs, MOST_PROCESSES) + 1) if envs % number == 0]
    if count is None:
        count = max(number for number in even if number <= available_cores())
        training = config.training.model_copy(update={"processes": count})
        config = config.model_copy(update={"training": training})
    if envs % count:
        multiples = [number for number in (envs // count * count, (envs // count + 1) * count) if number]
        counts = [*(n for n in even if n < count)][-1:] + [*(n for n in even if n > count)][:1]
        envs_that_fit = setting("environment.envs", " or ".join(map(str, multiples)))
        counts_that_fit = setting("training.processes", " or ".join(map(str, counts)))
        raise InputError(
            f"environment.envs {envs} cannot be shared evenly by training.processes {count}; give "
            f"{envs_that_fit}, or {counts_that_fit}"
        )
    return config


def refused(
    error: ValidationError, model: type[BaseModel], source: str = "", prefix: tuple[str, ...] = ()
) -> InputError:
    """What is wrong first, with its place, and what is close to an unknown key.

    Args:
        error: What pydantic raised.
        model: What was being read.
        source: A file; without it values are settings.
        prefix: The table that the values stand in.
    """
    told = refusal(error, source, prefix=prefix, known=lambda place: _fields_at(model, place))
    unknown = [str(found["loc"][-1]) for found in error.errors() if found["type"] == "extra_forbidden"]
    table = next((name for name in unknown if name in TrainConfig.model_fields), None)
    return InputError(f"{told}; {table} is a table of its own: {_keys_of(table)}") if table else told


def _keys_of(table: str) -> str:
    """The settings of a table, as one writes them."""
    return ", ".join(f"{table}.{name}" for name in _fields_at(TrainConfig, (table,)))


def _fields_at(model: type[BaseModel], place: tuple[int | str, ...]) -> dict[str, Any]:
    fields: dict[str, Any] = {"environment": None}
    for part in place:
        kinds = [model.model_fields[str(part)].annotation] if str(part) in model.model_fields else []
        kinds += list(getattr(kinds[0], "__args__", ())) if kinds else []
        model = next(
            (kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel)), model
        )
    fields = dict(model.model_fields)
    if model is EnvironmentSection:
        fields |= EnvConfig.model_fields
    if model is TrainConfig:
        fields |= algorithm_names()
    return fields


def with_none_in_words(settings: Mapping[str, Any]) -> dict[str, Any]:
    """For TOML, which cannot say that a setting is switched off: ``"none"`` instead of None."""
    return {name: "none" if value is None else value for name, value in settings.items()}


def without_words_for_none(settings: Any) -> Any:
    """The opposite, for settings of an algorithm: none of them takes a text that reads so."""
    if not isinstance(settings, Mapping):
        return settings
    return {name: None if value == "none" else value for name, value in settings.items()}


def merged(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Nested tables, those of ``changes`` taking precedence key by key.

    ``environment.rewards`` and other tables that are values of a setting are replaced whole.
    """
    result = dict(base)
    for name, value in changes.items():
        both = isinstance(value, Mapping) and isinstance(result.get(name), Mapping)
        sections = (*TrainConfig.model_fields, *algorithm_names())
        result[name] = merged(result[name], value) if both and name in sections else value
    return result
