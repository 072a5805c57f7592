"""Who is compared: policies by name, all with the same placement and the same information."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from gpuyard.cluster.model import Cluster
from gpuyard.config import SimulationConfig
from gpuyard.errors import InputError, setting
from gpuyard.evaluate.setting import PolicyEntry, Role
from gpuyard.network.policy import LearnedPolicy
from gpuyard.network.transfer import other_cluster, other_information, other_steps
from gpuyard.observation.config import HOST_KINDS
from gpuyard.policies.base import RECORDED, ReplayingPolicy
from gpuyard.policies.grammar import DEFAULT_PLACEMENT, PolicySpec
from gpuyard.policies.policy_file import TunedPolicy
from gpuyard.simulation.find import find_policy
from gpuyard.workload import Workload

Policy = PolicySpec | ReplayingPolicy

_MODEL_FILES = ("best", "last", "model")


@dataclass(frozen=True)
class Contender:
    """A policy and its entry."""

    entry: PolicyEntry
    policy: Policy

    @property
    def name(self) -> str:
        """The full name."""
        return self.entry.name

    @property
    def predicts(self) -> bool:
        """Whether it goes by run times predicted from finished jobs, whatever the settings."""
        rules = self.policy.base if isinstance(self.policy, LearnedPolicy) else self.policy.rules
        return rules is not None and rules.predicts

    def in_role(self, role: Role) -> "Contender":
        """The same in another role."""
        return replace(self, entry=replace(self.entry, role=role))

    def beside(self) -> "Contender":
        """The same as one of those that are compared with a reference."""
        return replace(self, entry=self.entry.beside())

    def assumed(self) -> "Contender":
        """The same as a reference that nobody named."""
        return replace(self, entry=replace(self.entry, role="reference", is_assumed=True))


def find_contenders(
    policies: Iterable[str | PolicySpec | LearnedPolicy],
    placement: str | None = None,
    *,
    any_placement: bool = False,
) -> tuple[list[Contender], str]:
    """Policies by name, and the placement that all of them share.

    Names of heuristics without a placement take that of the others. A policy given twice is there once.

    Args:
        policies: Names, run directories or model files.
        placement: Of all; None: the one that they state.
        any_placement: They may state different ones; the first that is stated is for those that do not.

    Raises:
        InputError: for a policy that is unknown, if placements differ, or if two policies would be the same
            one because they share a placement.
    """
    found = [(one, find_policy(one) if isinstance(one, str) else one) for one in policies]
    shared = _shared_placement(found, placement, any_placement=any_placement)
    contenders: dict[str, Contender] = {}
    as_given: dict[str, tuple[str, str]] = {}
    for text, policy in found:
        if not isinstance(policy, PolicySpec | ReplayingPolicy):
            raise InputError(f"policy {policy!r}: expected a policy's name, a run directory or a model file")
        own = policy.name
        if isinstance(policy, PolicySpec) and not (any_placement and _states_placement(text, policy)):
            policy = replace(policy, placement=shared)
        given = text if isinstance(text, str) else own
        first, before = as_given.setdefault(policy.name, (given, own))
        if before != own:
            raise InputError(
                f"policies {first} and {given} would both be {policy.name}, as names without a placement "
                "take that of the others; leave one of them out, or write both with their placements "
                f"({before} and {own}) and add {setting('any_placement', True)}"
            )
        contenders.setdefault(policy.name, contender_of(policy))
    return with_labels(list(contenders.values())), shared


def _shared_placement(
    found: Iterable[tuple[str | PolicySpec | LearnedPolicy, object]],
    placement: str | None,
    *,
    any_placement: bool,
) -> str:
    """The placement that policies state, or the first of them if they may differ."""
    stated: dict[str, str] = {} if placement is None else {placement: "asked for"}
    for text, policy in found:
        if isinstance(policy, LearnedPolicy):
            stated.setdefault(policy.base.placement, f"that of {policy.name}")
        elif isinstance(policy, PolicySpec) and _states_placement(text, policy):
            stated.setdefault(policy.placement, f"that of {policy.name}")
    if len(stated) > 1 and not any_placement:
        (first, of_first), (second, of_second), *_ = stated.items()
        raise InputError(
            f"policies must be compared with the same placement, but {first} is {of_first} and {second} "
            f"{of_second}; compare those with {first} and those with {second} apart, or all of them with "
            f"{setting('any_placement', True)}"
        )
    return next(iter(stated), DEFAULT_PLACEMENT)


def _states_placement(text: str | PolicySpec | LearnedPolicy, policy: PolicySpec) -> bool:
    """Whether a policy says where jobs go; a name may leave that out."""
    if isinstance(policy, TunedPolicy):
        return policy.states_placement
    return not isinstance(text, str) or "/" in text


def contender_of(policy: PolicySpec | ReplayingPolicy, role: Role = "given") -> Contender:
    """A policy with its entry."""
    if isinstance(policy, LearnedPolicy):
        placement = policy.base.placement
        entry = PolicyEntry(policy.name, _short(policy.name), "learned", policy.name, placement, role)
        return Contender(entry, policy)
    if policy.name == RECORDED:
        return Contender(PolicyEntry(RECORDED, RECORDED, "recorded", None, DEFAULT_PLACEMENT, role), policy)
    if not isinstance(policy, PolicySpec):
        raise InputError(f"policy {policy.name}: expected a policy's name, a run directory or a model file")
    if isinstance(policy, TunedPolicy):
        return Contender(_tuned_entry(policy, role), policy)
    label = policy.name.rpartition("/")[0]
    return Contender(PolicyEntry(policy.name, label, "heuristic", None, policy.placement, role), policy)


def _tuned_entry(policy: TunedPolicy, role: Role) -> PolicyEntry:
    return PolicyEntry(
        policy.name,
        policy.title,
        "heuristic",
        policy.path,
        policy.placement,
        role,
        rules=policy.grammar,
        settings=dict(policy.settings),
        calibration={} if policy.calibration is None else policy.calibration.model_dump(),
    )


def _short(name: str) -> str:
    """What a person would call a learned policy: its run's name, rather than that of a file in it."""
    path = Path(name.removeprefix("model:"))
    if path.suffix == ".safetensors" and path.stem in _MODEL_FILES and path.parent.name:
        return path.parent.name
    return path.name.removesuffix(".safetensors") or str(path.resolve().name)


def with_labels(contenders: Sequence[Contender]) -> list[Contender]:
    """With labels that tell them apart: full names where two would share one, or placements differ."""
    labels = [contender.entry.label for contender in contenders]
    placed = {one.entry.placement for one in contenders if one.entry.kind != "recorded"}
    differ = len(placed) > 1

    def labelled(one: Contender) -> Contender:
        by_name = one.entry.kind == "heuristic" and not one.entry.rules
        whole = labels.count(one.entry.label) > 1 or (differ and by_name)
        return replace(one, entry=replace(one.entry, label=one.name)) if whole else one

    return [labelled(one) for one in contenders]


def checked(
    contender: Contender, workload: Workload, cluster: Cluster, config: SimulationConfig, *, transfer: bool
) -> Contender:
    """A contender that can run here, with a note about what differs from its training.

    Args:
        contender: Who.
        workload: Some of the jobs.
        cluster: What they run on.
        config: Settings of all.
        transfer: Whether a learned policy may have been trained with other information or elsewhere.

    Raises:
        InputError: if it cannot, or not in a fair comparison.
    """
    policy = contender.policy
    if not isinstance(policy, LearnedPolicy):
        policy.check_supported(workload, cluster, config)
        return contender
    if policy.model.kind in HOST_KINDS:
        raise InputError(
            f"policy {policy.name}: chooses hosts, which shows in its own environment only; use "
            f"{setting('episodes')} (evaluate_episodes)"
        )
    differences = [*other_information(policy.model, config), *other_cluster(policy.model, cluster)]
    if differences and not transfer:
        raise InputError(
            f"policy {policy.name}: {differences[0]}; compare it under the same, train it anew, or allow it "
            f"with {setting('transfer', True)}"
        )
    policy.check_supported(workload, cluster, config)
    notes = [*differences, *other_steps(policy.model)]
    return replace(contender, entry=replace(contender.entry, note="; ".join(notes)))


def without_doubles(contenders: Iterable[Contender]) -> list[Contender]:
    """The first of each name."""
    found: dict[str, Contender] = {}
    for one in contenders:
        found.setdefault(one.name, one)
    return list(found.values())
