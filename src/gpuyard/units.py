"""Values as people read them (13 min 9 s, 81.3 %, 1,234) and as programs do (JSON)."""

import json
import math
import re
from collections.abc import Sequence
from html import escape
from typing import Any

_PERCENT_ENDINGS = ("utilization", "_rate", "fragmentation")
_WORDS = {"jct": "JCT", "gpu": "GPU", "cpu": "CPU", "utilization": "use", "kwh": "kWh"}
_LONG = ("d", "h", "min", "s")
_UNITS_S = (86400, 3600, 60, 1)


def duration(seconds: float, *, short: bool = False) -> str:
    """A length of time in its two largest units: ``4 h 34 min``, or ``4h 34m`` if it must be short."""
    gap, names = ("", ("d", "h", "m", "s")) if short else (" ", _LONG)
    sign, seconds = ("-", -seconds) if seconds < 0 else ("", seconds)
    if 0 < seconds < 0.0995:
        return f"{sign}{number(seconds * 1e3)}{gap}ms"
    if seconds < 59.95:
        digits = 0 if seconds == 0 else 1 if seconds >= 0.995 else 2
        return f"{sign}{seconds:.{digits}f}{gap}{names[3]}"
    # Round in the smaller unit shown, so that no 60 s or 24 h is left behind.
    step = 3600 if seconds >= 86400 - 30 else 60 if seconds >= 3600 - 0.5 else 1
    whole = math.floor(seconds / step + 0.5) * step
    large = next(index for index, unit in enumerate(_UNITS_S) if whole >= unit)
    first, rest = divmod(whole, _UNITS_S[large])
    text = f"{sign}{first:,}{gap}{names[large]}"
    second = rest // _UNITS_S[large + 1] if large < 3 else 0
    return f"{text} {second}{gap}{names[large + 1]}" if second else text


def number(value: float) -> str:
    """Three significant digits or so, thousands separated."""
    if isinstance(value, int) or abs(value) >= 99.95:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 9.995 else f"{value:.2f}"


def rough(value: float) -> str:
    """Three significant digits of a large number, in words from a million on."""
    if value >= 999_500:
        return f"{value / 1e6:.3g} million"
    return f"{float(f'{value:.3g}'):,.0f}" if value >= 100 else number(value)


def metric_text(name: str, value: float | int | None, *, short: bool = False) -> str:
    """The value of a metric, in units that its name implies; ``-`` if there is none."""
    if value is None or math.isnan(value):
        return "-"
    if name.endswith("_s"):
        return duration(value, short=short)
    if name.endswith(_PERCENT_ENDINGS):
        return f"{100 * value:.1f} %"
    return number(value)


def metric_label(name: str) -> str:
    """The name of a metric in words: ``mean_jct_s`` is ``mean JCT``."""
    return " ".join(_WORDS.get(word, word) for word in name.removesuffix("_s").split("_"))


def relative_change(value: float | None, first: float | None) -> float | None:
    """How far a value lies from another, as a share of that; None if one is unknown, or it rose from 0."""
    if value is None or first is None:
        return None
    if first == 0:
        return 0.0 if value == 0 else None
    return value / first - 1


def plural(count: int, thing: str) -> str:
    """``1 job``, ``2,000 jobs``, ``2 policies``."""
    if count == 1:
        return f"1 {thing}"
    return f"{count:,} {thing[:-1]}ies" if thing.endswith("y") else f"{count:,} {thing}s"


_QUANTITY = re.compile(
    r"\d (?:%|(?:d|h|min|s|ms|kWh|GPUs?|jobs?|jobs/s|million)\b)(?: \d+ (?:h|min|s)\b)?|[x×] (?=\d)"
)


def kept_together(text: str, gap: str = "\u00a0") -> str:
    """A text whose numbers do not part from their units, nor parts of a length of time, at a line's end."""
    return _QUANTITY.sub(lambda found: found.group().replace(" ", gap), text)


def html_table(caption: str, rows: Sequence[Sequence[str]]) -> str:
    """A paragraph and a table for notebooks; the first row has the names of columns."""
    head, *rest = ["".join(f"<td>{escape(text)}</td>" for text in row) for row in rows]
    body = "".join(f"<tr>{row}</tr>" for row in rest)
    names = head.replace("td>", "th>")
    return f"<p>{escape(caption)}</p><table><thead><tr>{names}</tr></thead><tbody>{body}</tbody></table>"


def json_text(document: Any) -> str:
    """As JSON for people and programs; what is no finite number is null."""
    return json.dumps(_finite(document), indent=2, allow_nan=False)


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(entry) for entry in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
