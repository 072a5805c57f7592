"""What verbs of ``gpuyard serve`` take: settings from a file, with flags on top."""

from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from gpuyard.cli.parameters import settings
from gpuyard.errors import InputError
from gpuyard.files import read_toml
from gpuyard.serve.settings import ServeSettings, make_settings

Flags = Annotated[
    ServeSettings,
    settings(
        ServeSettings,
        "Agent",
        parts={
            "state_dir": "Rounds",
            "max_wait_s": "Limits",
            "watchdog_s": "Safety",
            "canary_partitions": "Canary",
            "keep_days": "Journal",
            "listen": "Access",
        },
        without=("simulation", "kubernetes", "scheduler"),
    ),
]
FLAGS = ServeSettings()
DEFAULT_DIR = FLAGS.state_dir
SITE = Path("/etc/gpuyard/serve.toml")
"""Settings of an installation, for commands that are given neither a file nor a directory."""
Config = Annotated[Path | None, Parameter(help="A TOML file of settings; flags replace what it says.")]
StateDir = Annotated[
    Path | None,
    Parameter(
        help="The agent's state directory; without it, that of --config, ./gpuyard-serve, or that of "
        "/etc/gpuyard/serve.toml."
    ),
]


def merged(config: Path | None, flags: ServeSettings) -> ServeSettings:
    """Settings of a file, with flags that were given on top.

    Raises:
        InputError: naming the file and the key, or the flag.
    """
    given = {name: getattr(flags, name) for name in flags.model_fields_set}
    return make_settings({**_read(config), **given}, "" if config is None else str(config))


def located(config: Path | None, state_dir: Path | None) -> ServeSettings:
    """Settings of an agent that is somewhere: of its file, or the defaults, with its directory.

    Raises:
        InputError: naming the file and the key.
    """
    values = _read(config)
    if state_dir is not None:
        values["state_dir"] = state_dir
    return make_settings(values, "" if config is None else str(config))


def _read(config: Path | None) -> dict[str, Any]:
    if config is None:
        return dict(read_toml(SITE)) if SITE.is_file() and not DEFAULT_DIR.exists() else {}
    if not config.is_file():
        raise InputError(f"--config {config}: there is no such file")
    return dict(read_toml(config))
