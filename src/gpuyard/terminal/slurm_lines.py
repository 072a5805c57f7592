"""Lines of slurm.conf on a terminal: what of a rule's gain is left under them."""

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from gpuyard.evaluate.export.gain import ExportGain
from gpuyard.evaluate.wording import limit_in_words
from gpuyard.metrics.catalogue import metrics
from gpuyard.metrics.guards import BrokenLimit
from gpuyard.terminal.tables import COMPARED, comparison_table
from gpuyard.units import number, plural

LINES = "these lines"
NOT_SIMULATED = (
    "Nothing was simulated: with --workload LOG --cluster CLUSTER this says what of the rule's gain is left."
)
MOST_BROKEN = 3


def gain_table(console: Console, gain: ExportGain) -> Table:
    """What runs today, the rule and the lines, with the metrics that are asked for first."""
    labels = [gain.current.entry.label, gain.rule.entry.label, LINES]
    runs = [gain.current, gain.rule, gain.lines]
    impossible = [0] if gain.current.result.impossible else []
    values = [run.metrics for run in runs]
    shown = {name: metrics()[name] for name in COMPARED}
    return comparison_table(console, labels, values, shown, (), impossible)


def gain_words(gain: ExportGain) -> list[str]:
    """The verdict, in sentences."""
    today, rule, lines = (number(value) for value in gain.values)
    names = gain.current.entry.label, gain.rule.entry.label
    figures = f"Mean bounded slowdown: {names[0]} today {today}, {names[1]} {rule}, {LINES} {lines}"
    if gain.gain_left is None:
        found = [f"{figures}. The rule itself gains nothing on this log, so there is no gain to keep."]
    elif gain.gain_left <= 0.0:
        found = [f"{figures}: nothing of the gain is left, and {LINES} are worse than what runs today."]
    elif gain.gain_left > 1.0:
        found = [f"{figures}: they gain more than the rule itself."]
    else:
        found = [f"{figures}: {gain.gain_left:.0%} of the gain is left.".replace("%", " %")]
    found.append(_advice(gain))
    if gain.rule_broken and not gain.broken:
        found.append(
            f"The rule itself breaks a limit on waits that {LINES} keep: {_limits(gain.rule_broken)}."
        )
    return found


def _advice(gain: ExportGain) -> str:
    if gain.broken:
        bound = (
            "" if "age:" in gain.rule.entry.label else " Try the rule with a bound on waits (+age:MAXWAIT)."
        )
        return f"Not recommended: {_limits(gain.broken)}.{bound}"
    if not gain.recommended:
        return f"Not recommended: {LINES} are no better than what runs today."
    return "All limits on waits are kept in this one replay. gpuyard evaluate tests the rule on many windows."


def _limits(broken: Sequence[BrokenLimit]) -> str:
    told = "; ".join(limit_in_words(one) for one in broken[:MOST_BROKEN])
    more = len(broken) - MOST_BROKEN
    return told + (f"; {plural(more, 'more limit')} on waits would be broken" if more > 0 else "")
