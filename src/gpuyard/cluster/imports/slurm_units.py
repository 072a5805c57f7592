"""Values as Slurm writes them: lengths of time, generic resources, trackable resources."""

import re

_TIME = re.compile(r"(?:(\d{1,7})-)?(\d{1,9})(?::(\d{1,9}))?(?::(\d{1,9}))?")
_ENDLESS = ("unlimited", "infinite", "-1")
_GPUS = re.compile(
    r"(?:^|,)(?:gres[:/])?gpu(?::(?!no_consume)([^,:()=]+?))?(?::no_consume)?[:=](\d{1,6})(?=[,(]|$)"
)

EXPECTED_TIME = "expected MINUTES, M:S, H:M:S, D-H, D-H:M, D-H:M:S or UNLIMITED"


def slurm_seconds(text: str) -> float | None:
    """A length of time in seconds; None if it is unlimited.

    Raises:
        ValueError: for anything else than Slurm's forms.
    """
    if text.strip().lower() in _ENDLESS:
        return None
    found = _TIME.fullmatch(text.strip())
    if not found:
        raise ValueError(f"cannot read the time {text!r}; {EXPECTED_TIME}")
    days, *rest = found.groups()
    first, second, third = (0 if part is None else int(part) for part in rest)
    if days is not None:
        return float(int(days) * 86400 + first * 3600 + second * 60 + third)
    if rest[2] is not None:
        return float(first * 3600 + second * 60 + third)
    return float(first * 60 + second)


def gpus_of(gres: str) -> tuple[tuple[str, int], ...]:
    """Types and numbers of GPUs among generic resources, such as ``gpu:a100:8(S:0-1),nvme:1``."""
    return tuple((kind or "gpu", int(count)) for kind, count in _GPUS.findall(gres))


def tres_amounts(text: str) -> dict[str, str]:
    """Trackable resources such as ``cpu=16,gres/gpu=4``, by name in lower case."""
    pairs = (part.partition("=") for part in text.split(",") if part.strip())
    return {name.strip().lower(): amount.strip() for name, _, amount in pairs}


def whole(text: str) -> int:
    """A whole number.

    Raises:
        ValueError: for anything else.
    """
    if not re.fullmatch(r"\d{1,10}", text.strip()):
        raise ValueError(f"cannot read {text!r}; expected a whole number")
    return int(text)


def limit(text: str) -> int | None:
    """A whole number; None if it is unlimited.

    Raises:
        ValueError: for anything else.
    """
    return None if text.strip().lower() in _ENDLESS else whole(text)


def yes(text: str) -> bool:
    """Whether a value says yes.

    Raises:
        ValueError: if it says neither yes nor no.
    """
    word = text.strip().lower()
    if word not in ("yes", "no", "true", "false", "1", "0", "up", "down"):
        raise ValueError(f"cannot read {text!r}; expected YES or NO")
    return word in ("yes", "true", "1", "up")
