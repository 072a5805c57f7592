"""Settings: what cannot be is refused with the name of the key."""

from pathlib import Path
from typing import Any

import pytest

from gpuyard.errors import InputError
from gpuyard.serve.settings import ServeSettings, make_settings, read_settings


def test_without_a_word_nothing_is_written_to_the_cluster() -> None:
    settings = ServeSettings()
    assert settings.mode == "shadow"
    assert not settings.acts
    assert settings.listen is None


@pytest.mark.parametrize(
    ("mode", "acts"), [("shadow", False), ("advise", False), ("canary", True), ("active", True)]
)
def test_canary_and_active_act(mode: str, acts: bool) -> None:
    assert make_settings({"mode": mode, "canary_share": 0.1}).acts is acts


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"mode": "canary"}, "canary_share"),
        ({"mode": "passive"}, "mode"),
        ({"control": "both"}, "control"),
        ({"lowest_priority": 5000, "highest_priority": 5500}, "highest_priority"),
        ({"lowest_priority": 0}, "lowest_priority"),
        ({"highest_priority": 2**32 - 2}, "highest_priority"),
        ({"listen": "127.0.0.1:9200"}, "token_file"),
        ({"watchdog_s": 10.0, "interval_s": 6.0}, "watchdog_s"),
        ({"deadline_ms": 0}, "deadline_ms"),
        ({"max_starts": 0}, "max_starts"),
        ({"max_wait_s": float("nan")}, "max_wait_s"),
        ({"canary_share": 1.5}, "canary_share"),
        ({"good_rounds": 0}, "good_rounds"),
        ({"polcy": "fifo"}, "polcy"),
        ({"estimates": "exact"}, "estimates"),
    ],
)
def test_what_cannot_be_is_refused_by_name(values: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        make_settings(values)


def test_a_file_is_read_and_changed(tmp_path: Path) -> None:
    path = tmp_path / "serve.toml"
    path.write_text('policy = "sjf+easy"\nmode = "active"\n[simulation]\nusage_half_life_s = 60.0\n')
    settings = read_settings(path, {"mode": "advise", "state_dir": tmp_path})
    assert (settings.policy, settings.mode) == ("sjf+easy", "advise")
    assert settings.simulation.usage_half_life_s == 60.0
    assert settings.journal == tmp_path / "journal.sqlite"
    assert settings.socket.parent == tmp_path


def test_a_wrong_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "serve.toml"
    path.write_text("max_starts = -1\n")
    with pytest.raises(InputError, match=r"serve\.toml"):
        read_settings(path)
    with pytest.raises(InputError, match=r"none\.toml"):
        read_settings(tmp_path / "none.toml")
