"""Names of policies: ``ORDER[+BACKFILL][+ADMISSION][/PLACEMENT]``."""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import gpuyard.policies.heuristics  # noqa: F401  (registers the native rules)
from gpuyard.errors import InputError
from gpuyard.policies.base import Policy
from gpuyard.policies.heuristics import Heuristic
from gpuyard.registry import registered, suggest

if TYPE_CHECKING:
    from gpuyard import _core

DEFAULT_BACKFILL = "strict"
DEFAULT_PLACEMENT = "consolidate"
GRAMMAR = "ORDER[+BACKFILL][+express:T0:K][/PLACEMENT], such as sjf+easy or wspt+easy+express:600:0.1/spread"
POWER = "power"
LARGEST_EXPONENT = 8.0


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

    @property
    def name(self) -> str:
        """The full name, with what was left out filled in."""
        admission = f"+{self.admission}" if self.admission else ""
        return f"{self.order}+{self.backfill}{admission}/{self.placement}"

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
        text: Such as ``fifo``, ``sjf+easy/consolidate`` or ``wspt+easy+express:600:0.1``.

    Raises:
        InputError: naming the part that is wrong, with a corrected name where one is close.
    """
    rest, slash, placement = text.strip().partition("/")
    order, *options = rest.split("+")
    order = _parse_order(text, order)
    backfill, admission = DEFAULT_BACKFILL, None
    for position, option in enumerate(options):
        if option.partition(":")[0] == "express":
            if admission is not None:
                raise InputError(f"policy {text!r} has two admission rules; expected {GRAMMAR}")
            admission = _parse_express(text, option)
        elif position == 0:
            _check(text, "backfill", option)
            backfill = option
        else:
            raise InputError(f"policy {text!r}: cannot read {option!r}; expected {GRAMMAR}")
    if slash:
        _check(text, "placement", placement)
    return PolicySpec(order, backfill, admission, placement if slash else DEFAULT_PLACEMENT)


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


def _parse_express(text: str, option: str) -> Express:
    fields = option.split(":")
    try:
        t0_s, k = (float(field) for field in fields[1:])
    except ValueError:
        raise InputError(
            f"policy {text!r}: cannot read {option!r}; expected express:T0:K with two numbers, "
            "such as express:600:0.1"
        ) from None
    if not (math.isfinite(t0_s) and math.isfinite(k) and t0_s > 0 and k >= 0):
        raise InputError(f"policy {text!r}: express needs T0 > 0 seconds and K >= 0, but got {option!r}")
    return Express(t0_s, k)
