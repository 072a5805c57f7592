"""Processes of one training run on one machine: they average gradients and exchange small messages.

Arrays are exchanged through memory that all of them map, words through sockets to the first process. The sum
is taken in order of rank, so that every process computes the same bits.
"""

import mmap
import os
import socket
import struct
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import torch

_LENGTH = struct.Struct("!q")


class PeerLostError(RuntimeError):
    """Another process of the run is gone."""


class ProcessGroup:
    """This process among the others of its run.

    Args:
        rank: Of this process, from 0.
        size: How many there are.
        memory: File descriptor of the memory they share.
        sockets: To all others if this is the first process, else to the first.
    """

    def __init__(self, rank: int, size: int, memory: int = -1, sockets: Sequence[int] = ()) -> None:
        self.rank = rank
        self.size = size
        self._memory = memory
        self._peers = [socket.socket(fileno=number) for number in sockets]
        self._slots = np.empty((0, 0, 0), np.float32)
        self._turn = 0

    def average(self, parameters: "Iterable[torch.nn.Parameter]") -> None:
        """Replace gradients by their mean over all processes."""
        if self.size == 1:
            return
        import torch

        gradients = [p.grad for p in parameters if p.grad is not None]
        flat = torch.cat([g.reshape(-1) for g in gradients]) if gradients else torch.zeros(0)
        mean = self.total(flat.to("cpu", torch.float32).numpy()) / np.float32(self.size)
        place = 0
        for gradient in gradients:
            count = gradient.numel()
            gradient.copy_(torch.from_numpy(mean[place : place + count]).view_as(gradient))
            place += count

    def total(self, values: np.ndarray) -> np.ndarray:
        """The sum of float32 arrays of the same length over all processes."""
        if self.size == 1:
            return values.astype(np.float32)
        if self._slots.shape[2] < len(values):
            self._grow(len(values))
        slots = self._slots[self._turn]  # two sets in turn: nobody writes where another may still read
        self._turn = 1 - self._turn
        slots[self.rank, : len(values)] = values
        self.wait()
        total: np.ndarray = slots[0, : len(values)].copy()
        for other in range(1, self.size):
            total += slots[other, : len(values)]
        return total

    def wait(self) -> None:
        """Until all processes have come here."""
        self.gather(b"")
        self.broadcast(b"")

    def gather(self, words: bytes) -> list[bytes]:
        """What every process says, by rank; the first process alone is told."""
        if self.rank:
            _send(self._peers[0], words)
            return []
        return [words, *(_receive(peer) for peer in self._peers)]

    def broadcast(self, words: bytes) -> bytes:
        """What the first process says; the others' words are not heard."""
        if self.rank:
            return _receive(self._peers[0])
        for peer in self._peers:
            _send(peer, words)
        return words

    def close(self) -> None:
        """Let go of the others."""
        for peer in self._peers:
            peer.close()

    def sum_exactly(self, values: np.ndarray) -> np.ndarray:
        """The sum of a few float64 numbers over all processes, in order of rank."""
        parts = self.gather(values.astype(np.float64).tobytes())
        total = sum((np.frombuffer(part) for part in parts), np.zeros(values.size))
        return np.frombuffer(self.broadcast(np.asarray(total).tobytes())).reshape(values.shape)

    def _grow(self, length: int) -> None:
        self.wait()
        length = max(length, 1)
        if self.rank == 0:
            os.ftruncate(self._memory, 2 * self.size * length * 4)
        self.wait()
        shared = mmap.mmap(self._memory, 2 * self.size * length * 4)
        self._slots = np.frombuffer(shared, np.float32).reshape(2, self.size, length)
        self._turn = 0


def _send(peer: socket.socket, words: bytes) -> None:
    try:
        peer.sendall(_LENGTH.pack(len(words)) + words)
    except OSError:
        raise PeerLostError("another process of this run has ended") from None


def _receive(peer: socket.socket) -> bytes:
    length = _LENGTH.unpack(_exactly(peer, _LENGTH.size))[0]
    return _exactly(peer, length)


def _exactly(peer: socket.socket, count: int) -> bytes:
    parts = []
    while count:
        try:
            part = peer.recv(min(count, 1 << 20))
        except OSError:
            part = b""
        if not part:
            raise PeerLostError("another process of this run has ended")
        parts.append(part)
        count -= len(part)
    return b"".join(parts)
