"""Names of policies: ``ORDER[+BACKFILL][+ADMISSION][+age:MAXWAIT][/PLACEMENT]``."""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import gpuyard.policies.heuristics  # noqa: F401  (registers the native rules)
from gpuyard.errors import InputError
from gpuyard.policies.base import Backfills, Policy
from gpuyard.policies.heuristics import Heuristic, Order
from gpuyard.registry import registered, suggest

if TYPE_CHECKING:
    from gpuyard import _core

DEFAULT_BACKFILL = "strict"
DEFAULT_PLACEMENT = "consolidate"
GRAMMAR = (
    "ORDER[+BACKFILL][+express:T0:K[:MAXWAIT]][+age:MAXWAIT][/PLACEMENT], such as sjf+easy or "
    "wspt+easy+express:600:0.1:86400/spread"
)
POWER = "power"
LARGEST_EXPONENT = 8.0
EXPRESS = "express"
AGE = "age"
LONGEST_BOUND_S = 2.0**32
"""The longest time that the simulator takes, seconds."""


@dataclass(frozen=True)
class Express:
    """An express lane: long jobs leave room for short ones (docs/contract/simulator.md, section 11).

    Attributes:
        t0_s: Jobs up to this long are always admitted, seconds.
        k: Share of free GPUs to leave for each e-fold of the estimate beyond ``t0_s``.
    """

    t0_s: float
    k: float

    def __str__(self) -> str:
        return f"express:{_plain(self.t0_s)}:{_plain(self.k)}"


def _plain(number: float) -> str:
    """The shortest text that reads back as the number, without a plus: that separates parts of a name."""
    return repr(float(number)).removesuffix(".0").replace("e+", "e")


@dataclass(frozen=True)
class PolicySpec(Policy):
    """A policy made of rules, taken apart. Make one with ``parse_policy``."""

    order: str
    """With its number, if it has one, as in ``power:0.5``."""
    backfill: str = DEFAULT_BACKFILL
    admission: Express | None = None
    placement: str = DEFAULT_PLACEMENT
    max_wait_s: float | None = None
    """The ageing bound, seconds: jobs that have waited so long go first and are always admitted."""

    @property
    def name(self) -> str:
        """The full name, with what was left out filled in."""
        rules = f"+{self.admission}" if self.admission else ""
        if self.max_wait_s is not None:
            rules += f":{_plain(self.max_wait_s)}" if self.admission else f"+{AGE}:{_plain(self.max_wait_s)}"
        return f"{self.order}+{self.backfill}{rules}/{self.placement}"

    @property
    def order_name(self) -> str:
        """The order as it is registered, without a number."""
        return POWER if self.order.startswith(f"{POWER}:") else self.order

    @property
    def order_parameter(self) -> float:
        """The number that belongs to the order; 1 if none does."""
        return float(self.order.partition(":")[2]) if self.order_name != self.order else 1.0

    @property
    def order_rule(self) -> Any:
        """What is registered as the order: a ``Heuristic``, or a function."""
        return registered("order")[self.order_name]

    @property
    def uses_estimates(self) -> bool:
        """Whether its choices depend on run time estimates."""
        backfill = registered("backfill")[self.backfill]
        by_order = getattr(self.order_rule, "uses_estimates", False)
        return bool(self.admission or backfill.uses_estimates or by_order)

    @property
    def is_optimised(self) -> bool:
        """Whether jobs are placed by an optimiser, outside the native core."""
        return self.placement == "milp"

    @property
    def preempts(self) -> bool:
        """Whether it may stop running jobs."""
        return bool(getattr(self.order_rule, "preempts", False))

    @property
    def backfills(self) -> Backfills | None:
        """When it makes backfill passes as Slurm does; None if it does not."""
        if self.backfill != "slurm":
            return None
        order = self.order_rule
        if not isinstance(order, Order) or self.max_wait_s is not None:
            return "always"
        if order.changes_by_period:
            return "if-calculated"
        return "if-changed" if order.fixed_while_waiting else "always"

    @property
    def predicts(self) -> bool:
        """Whether it goes by run times predicted from finished jobs."""
        return bool(getattr(self.order_rule, "predicts", False))

    @property
    def rules(self) -> "PolicySpec":
        """Itself."""
        return self

    def decide(self, snapshot: "_core.Snapshot") -> "_core.Decision":
        """What to start now."""
        from gpuyard import _core

        native = self.native()
        return self.for_run().decide(snapshot) if native is None else _core.decide(snapshot, native)

    def native(self) -> "_core.Policy | None":
        """The policy as the core runs it by itself; None if an optimiser places jobs."""
        return None if self.is_optimised else self.compile()

    def for_run(self) -> Policy:
        """Who is asked in one run: itself, or the optimiser that places jobs."""
        if not self.is_optimised:
            return self
        from gpuyard.policies.milp.policy import MilpPolicy

        return MilpPolicy(self)

    def compile(self) -> "_core.Policy":
        """The policy as the native core runs it."""
        from gpuyard import _core

        order = self.order_rule
        express = self.admission or Express(1.0, 0.0)
        scores = None if isinstance(order, Heuristic) else _score_function(order)
        if self.is_optimised:
            raise ValueError(f"policy {self.name} is not native; use gpuyard.policies.milp.policy.MilpPolicy")
        return _core.Policy(
            self.order_name,
            self.backfill,
            self.placement,
            express.t0_s,
            express.k,
            scores,
            self.order_parameter,
            _core.ENDLESS if self.max_wait_s is None else max(1, round(self.max_wait_s * 1e6)),
        )


def _score_function(order: Any) -> Any:
    """Makes whatever an order from Python returns an array of doubles."""
    import numpy as np

    def scores(queue: dict[str, Any]) -> Any:
        answer = np.ascontiguousarray(order(queue), dtype=np.float64)
        if answer.ndim != 1:
            raise ValueError(
                f"an order must return one score a job, but returned an array of shape {answer.shape}"
            )
        return answer

    return scores


def parse_policy(text: str) -> PolicySpec:
    """Take a policy's name apart.

    Args:
        text: Such as ``fifo``, ``sjf+easy/consolidate``, ``wspt+easy+express:600:0.1`` or
            ``sjf+easy+age:86400``.

    Raises:
        InputError: naming the part that is wrong, with a corrected name where one is close.
    """
    rest, slash, placement = text.strip().partition("/")
    order, *options = rest.split("+")
    order = _parse_order(text, order)
    backfill, admission, max_wait_s = DEFAULT_BACKFILL, None, None
    for position, option in enumerate(options):
        rule = option.partition(":")[0]
        if rule == EXPRESS:
            if admission is not None:
                raise InputError(f"policy {text!r} has two admission rules; expected {GRAMMAR}")
            admission, bound_s = _parse_express(text, option)
            max_wait_s = _one_bound(text, max_wait_s, bound_s)
        elif rule == AGE:
            max_wait_s = _one_bound(text, max_wait_s, _parse_age(text, option))
        elif position == 0:
            _check(text, "backfill", option)
            backfill = option
        else:
            raise InputError(f"policy {text!r}: cannot read {option!r}; expected {GRAMMAR}")
    if slash:
        _check(text, "placement", placement)
    return PolicySpec(order, backfill, admission, placement if slash else DEFAULT_PLACEMENT, max_wait_s)


def _one_bound(text: str, before: float | None, bound_s: float | None) -> float | None:
    """The ageing bound, of which a name has at most one."""
    if before is not None and bound_s is not None:
        raise InputError(
            f"policy {text!r} has two ageing bounds; state one, as {AGE}:MAXWAIT or at the end of express"
        )
    return before if bound_s is None else bound_s


def _check(text: str, kind: str, name: str) -> None:
    names = registered(kind)
    if name in names:
        return
    hint = suggest(name, names)
    if "did you mean" in hint:
        best = hint.split("'")[1]
        hint = f"; did you mean {text.replace(name, best, 1)!r}?"
    raise InputError(f"unknown {kind} {name!r} in policy {text!r}{hint}")


def _parse_order(text: str, order: str) -> str:
    """The order in one way of writing it."""
    name, _, number = order.partition(":")
    if name != POWER:
        _check(text, "order", order)
        return order
    try:
        exponent = float(number)
    except ValueError:
        example = registered("order")[POWER].example
        raise InputError(
            f"policy {text!r}: cannot read {order!r}; expected {POWER}:A with a number, such as "
            f"{text.replace(order, example, 1)!r}"
        ) from None
    if not 0.0 < exponent <= LARGEST_EXPONENT:
        raise InputError(
            f"policy {text!r}: {POWER} needs a number above 0 and up to {LARGEST_EXPONENT:g}, "
            f"but got {order!r}"
        )
    return f"{POWER}:{_plain(exponent)}"


def _parse_express(text: str, option: str) -> tuple[Express, float | None]:
    """The lane, and the ageing bound if it states one."""
    _, *fields = option.split(":")
    try:
        t0_s, k, *bound = (float(field) for field in fields)
    except ValueError:
        bound = [0.0, 0.0]
    if len(bound) > 1:
        raise InputError(
            f"policy {text!r}: cannot read {option!r}; expected express:T0:K with two numbers, "
            "such as express:600:0.1, or express:T0:K:MAXWAIT with three"
        )
    if not (math.isfinite(t0_s) and math.isfinite(k) and t0_s > 0 and k >= 0):
        raise InputError(f"policy {text!r}: express needs T0 > 0 seconds and K >= 0, but got {option!r}")
    return Express(t0_s, k), _checked_bound(text, option, bound[0]) if bound else None


def _parse_age(text: str, option: str) -> float:
    try:
        bound_s = float(option.partition(":")[2])
    except ValueError:
        raise InputError(
            f"policy {text!r}: cannot read {option!r}; expected {AGE}:MAXWAIT with a number of seconds, "
            f"such as {AGE}:86400"
        ) from None
    return _checked_bound(text, option, bound_s)


def _checked_bound(text: str, option: str, bound_s: float) -> float:
    if not 0.0 < bound_s <= LONGEST_BOUND_S:
        raise InputError(
            f"policy {text!r}: MAXWAIT must be a number of seconds above 0 and up to {LONGEST_BOUND_S:.0f}, "
            f"but got {option!r}"
        )
    return bound_s
