"""Which GPUs of a node a job is drawn on: schedules tell how many it held there, not which."""

EARLIER = 1e-9
"""How far, in seconds, an end may lie after the begin that it equals: times are whole microseconds."""


class NodeLanes:
    """The GPUs of one node, taken in order of time, the lowest free ones first."""

    def __init__(self) -> None:
        self._free_from: list[float] = []

    def take(self, begin_s: float, end_s: float, count: int) -> tuple[int, ...]:
        """Numbers of ``count`` GPUs (one at least) that are free from then on; begins must not descend."""
        wanted = max(count, 1)
        free = [k for k, at in enumerate(self._free_from) if at <= begin_s + EARLIER][:wanted]
        missing = wanted - len(free)
        free += range(len(self._free_from), len(self._free_from) + missing)
        self._free_from += [0.0] * missing
        for lane in free:
            self._free_from[lane] = end_s
        return tuple(free)
