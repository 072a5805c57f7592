"""Files written so that they are either complete or as they were before; JSON read strictly; TOML."""

import json
import os
import re
import secrets
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from gpuyard.errors import InputError

_OS_ERROR = re.compile(r"\(os error (\d{1,4})\)")
"""How polars, which is written in Rust, states an error of the system in exceptions of its own."""

_MOST_DIGITS = 300
"""A whole number of more digits is no float, and so no number of a job, a result or a model."""


@contextmanager
def atomic_write(path: str | Path) -> Iterator[Path]:
    """Yield a temporary path beside ``path``; on success it is synced to disk and takes the name ``path``.

    If the body raises, the temporary file is removed and ``path`` is untouched. A symbolic link is followed.

    Raises:
        InputError: if the directory does not exist, ``path`` is a directory, or the system refuses to write.
    """
    target = check_target(path)
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(6)}.tmp")
    try:
        yield temporary
        _sync(temporary)
        temporary.replace(target)
        _sync(target.parent)
    except Exception as error:
        if not isinstance(error, OSError) and not _OS_ERROR.search(str(error)):
            raise
        reason = _reason(error).replace(str(temporary), str(target))
        raise InputError(f"{path}: cannot be written ({reason})") from None
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def check_target(path: str | Path) -> Path:
    """Refuse a file that could not be written, before long work is done for it.

    Returns:
        The file that would be written: absolute, symbolic links followed.

    Raises:
        InputError: if it is a directory, or its directory does not exist or may not be written to.
    """
    try:
        target = Path(path).resolve()
        if target.is_dir():
            raise InputError(f"{path}: is a directory; give the name of a file to write")
        if not target.parent.is_dir():
            raise InputError(f"{path}: there is no directory {target.parent}; create it first")
        _check_writable(path, target.parent)
    except (OSError, RuntimeError) as error:  # RuntimeError: links that lead to each other
        raise InputError(f"{path}: cannot be written ({_reason(error)})") from None
    return target


def check_directory(path: str | Path) -> None:
    """Refuse a directory that could not be made or written to. Nothing is made.

    Raises:
        InputError: naming it and the reason.
    """
    try:
        nearest = Path(path).resolve()
        while not nearest.exists():
            nearest = nearest.parent
        if not nearest.is_dir():
            raise InputError(f"{path}: cannot be made a directory ({nearest} is a file)")
        _check_writable(path, nearest)
    except (OSError, RuntimeError) as error:
        raise InputError(f"{path}: cannot be made a directory ({_reason(error)})") from None


def _check_writable(path: str | Path, directory: Path) -> None:
    if not os.access(directory, os.W_OK | os.X_OK):
        raise InputError(f"{path}: cannot be written (no permission to write to {directory})")


def _reason(error: Exception) -> str:
    """What the system says."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    number = _OS_ERROR.search(str(error))
    return os.strerror(int(number[1])) if number else str(error).strip().split("\n", 1)[0]


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def parse_json(data: str | bytes, *, lenient: bool = False) -> Any:
    """What a JSON text states, if all of it can be kept in tables, files and on a terminal.

    Args:
        data: The text, or its UTF-8 bytes.
        lenient: Accept NaN and infinite numbers, which Python's own ``json.dumps`` writes.

    Raises:
        ValueError: naming what is wrong. Beside what is no JSON these are halves of UTF-16
            pairs, keys that appear twice, NaN, numbers beyond the range of a float, and too deep nesting.
    """
    text = data if isinstance(data, str) else data.decode("utf-8-sig")
    numbers: dict[str, Any] = {} if lenient else {"parse_constant": _no_number, "parse_float": _finite_float}
    try:
        value = json.loads(text, parse_int=_whole, object_pairs_hook=_unique, **numbers)
    except RecursionError:
        raise ValueError("its values are nested too deeply") from None
    if not is_text(value):
        raise ValueError("a text in it holds half of a UTF-16 pair")
    return value


def is_text(value: Any) -> bool:
    """Whether all texts and keys of a JSON value are Unicode text, without halves of UTF-16 pairs."""
    if isinstance(value, str):
        return value.isascii() or not any("\ud800" <= letter <= "\udfff" for letter in value)
    if isinstance(value, dict):
        return all(is_text(key) and is_text(entry) for key, entry in value.items())
    return all(map(is_text, value)) if isinstance(value, list) else True


def _no_number(constant: str) -> float:
    raise ValueError(f"{constant} is no number")


def _finite_float(text: str) -> float:
    value = float(text)
    if value in (float("inf"), float("-inf")):
        raise ValueError(f"{text[:40]} is beyond the range of numbers")
    return value


def _whole(text: str) -> int:
    if len(text) > _MOST_DIGITS:
        raise ValueError(f"{text[:20]}... is beyond the range of numbers")
    return int(text)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    record = dict(pairs)
    if len(record) < len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f"key {next(key for key in keys if keys.count(key) > 1)!r} appears twice")
    return record


def read_toml(path: str | Path) -> dict[str, Any]:
    """The tables of a TOML file.

    Raises:
        InputError: if it cannot be read, with the line.
    """
    try:
        return tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise InputError(f"{path}: cannot be read ({reason})") from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: is not valid TOML: {error}") from None


def toml_text(document: Mapping[str, Any]) -> str:
    """Values, tables and lists of tables as TOML; tables inside those are inline, None is left out."""
    plain = [f"{name} = {toml_value(value)}" for name, value in document.items() if not _tables(value)]
    blocks = ["\n".join(plain)] if plain else []
    for name, value in document.items():
        heading = f"[{_key(name)}]" if isinstance(value, Mapping) else f"[[{_key(name)}]]"
        for table in _tables(value):
            stated = [f"{_key(key)} = {toml_value(item)}" for key, item in table.items() if item is not None]
            blocks.append("\n".join([heading, *stated]))
    return "\n\n".join(blocks) + "\n"


def toml_value(value: Any) -> str:
    """A value as TOML on one line."""
    if isinstance(value, Mapping):
        stated = ((key, item) for key, item in value.items() if item is not None)
        inner = ", ".join(f"{_key(key)} = {toml_value(item)}" for key, item in stated)
        return f"{{ {inner} }}" if inner else "{}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(toml_value, value))}]"
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return f"{value:.1f}"
    # Of the control characters, JSON leaves this one alone and TOML does not.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _tables(value: Any) -> list[Mapping[str, Any]]:
    """A table, or a list of nothing else; empty for any other value."""
    if isinstance(value, Mapping):
        return [value]
    is_list = isinstance(value, list | tuple) and value and all(isinstance(item, Mapping) for item in value)
    return list(value) if is_list else []


def _key(name: str) -> str:
    return name if name.replace("-", "").replace("_", "").isalnum() and name.isascii() else json.dumps(name)
