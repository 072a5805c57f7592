"""One process of a training run, started by ``gpuyard.learn.process.launch``."""

import argparse
import signal
import sys
from pathlib import Path
from typing import Any

from gpuyard.errors import InputError
from gpuyard.files import read_toml
from gpuyard.learn.algorithm import find_algorithm
from gpuyard.learn.config import read_config
from gpuyard.learn.process.exit_codes import BAD_INPUT, DONE, INTERRUPTED, NOT_FINITE, PEER_LOST, REFUSED
from gpuyard.learn.process.group import PeerLostError, ProcessGroup
from gpuyard.runs.directory import CONFIG


def main(arguments: list[str] | None = None) -> int:
    """Run one process of a training run and return its exit code."""
    parser = argparse.ArgumentParser(prog="gpuyard.learn.process.worker")
    parser.add_argument("directory", type=Path)
    parser.add_argument("--rank", type=int, default=0)
    parser.add_argument("--size", type=int, default=1)
    parser.add_argument("--memory", type=int, default=-1)
    parser.add_argument("--sockets", default="")
    parser.add_argument("--parent", type=int, default=0)
    parser.add_argument("--resume", action="store_true")
    given = parser.parse_args(arguments)
    sockets = [int(number) for number in given.sockets.split(",") if number]
    group = ProcessGroup(given.rank, given.size, given.memory, sockets)
    try:
        return _train(given.directory, group, given.resume, given.parent)
    except InputError as error:
        print(f"{REFUSED}{error}", file=sys.stderr)
        return BAD_INPUT
    except PeerLostError:
        return PEER_LOST


def _train(directory: Path, group: ProcessGroup, resume: bool, parent: int) -> int:
    config = read_config(read_toml(directory / CONFIG), str(directory / CONFIG))
    loop = find_algorithm(config.algorithm).loop(directory, config, group)
    loop.parent = parent

    def ask(*_: Any) -> None:
        loop.stop_asked = True

    def finish(*_: Any) -> None:
        loop.finish_asked = True

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, ask)
    signal.signal(signal.SIGUSR1, finish)
    reason = loop.run(resume=resume)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
        signal.signal(number, signal.SIG_IGN)  # asked again, it is ending already
    return {"interrupted": INTERRUPTED, "nan": NOT_FINITE}.get(reason, DONE)


if __name__ == "__main__":
    sys.exit(main())
