"""Processes of a run average gradients and tell each other small things."""

import os
import socket
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from gpuyard.learn.process.group import PeerLostError, ProcessGroup


def in_processes(size: int, work: Callable[[ProcessGroup], Any]) -> list[Any]:
    """Run the work of every rank, here in threads of one process: they share memory and sockets alike."""
    memory = os.memfd_create("test")
    pairs = [socket.socketpair() for _ in range(size - 1)]
    groups = [ProcessGroup(0, size, memory, [a.detach() for a, _ in pairs])]
    groups += [ProcessGroup(r, size, os.dup(memory), [pairs[r - 1][1].detach()]) for r in range(1, size)]
    results: list[Any] = [None] * size

    def run(rank: int) -> None:
        results[rank] = work(groups[rank])

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    for group in groups:
        group.close()
    return results


@pytest.mark.parametrize("size", [1, 2, 3])
def test_gradients_become_their_mean_in_every_process(size: int) -> None:
    def work(group: ProcessGroup) -> list[torch.Tensor]:
        seen = []
        for turn, shape in enumerate([(3, 2), (3, 2), (50, 7), (2,)]):
            parameter = torch.nn.Parameter(torch.zeros(shape))
            parameter.grad = torch.full(shape, float(group.rank + turn))
            group.average([parameter])
            seen.append(parameter.grad.clone())
        return seen

    results = [work(ProcessGroup(0, 1))] if size == 1 else in_processes(size, work)
    mean = (size - 1) / 2
    for seen in results:
        assert [float(t.unique()) for t in seen] == [mean, mean + 1, mean + 2, mean + 3]


def test_sums_have_the_same_bits_in_every_process() -> None:
    parts = [np.random.default_rng(rank).normal(size=1000).astype(np.float32) for rank in range(3)]
    results = in_processes(3, lambda group: group.total(parts[group.rank]))
    assert all((result == (parts[0] + parts[1]) + parts[2]).all() for result in results)


def test_words_of_the_first_process_reach_all_and_all_words_the_first() -> None:
    def work(group: ProcessGroup) -> tuple[list[bytes], bytes]:
        return group.gather(b"%d" % group.rank * 3), group.broadcast(
            b"x" * 3_000_000 if group.rank == 0 else b""
        )

    results = in_processes(3, work)
    assert results[0][0] == [b"000", b"111", b"222"]
    assert {len(words) for _, words in results} == {3_000_000}


def test_process_that_is_gone_is_noticed() -> None:
    a, b = socket.socketpair()
    b.close()
    group = ProcessGroup(0, 2, -1, [a.detach()])
    with pytest.raises(PeerLostError):
        group.wait()
    group.close()
