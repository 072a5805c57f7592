"""The agent's word in a job's AdminComment; whatever else a site writes there stays.

Words are separated by ``; ``. The agent's is ``gpuyard:held`` for a job that was held for it,
``gpuyard:DECISION`` after it set a priority, and ``gpuyard:DECISION@NODES`` after it prescribed nodes: so
that those who clean up know which prescriptions are its own.
"""

from dataclasses import dataclass

from gpuyard.cluster.hostlists import expanded_nodes
from gpuyard.serve.adapter import HELD_MARK, MARK

_BETWEEN = "; "


@dataclass(frozen=True)
class Comment:
    """An AdminComment.

    Attributes:
        others: Words of the site.
        own: The agent's word; empty if there is none.
    """

    others: tuple[str, ...] = ()
    own: str = ""

    @classmethod
    def read(cls, text: str) -> "Comment":
        """The parts of a comment."""
        parts = [part.strip() for part in text.split(";")]
        own = [part for part in parts if part.startswith(MARK)]
        # Without a word of the agent's the text stays as it is, to the last blank.
        others = tuple(part for part in parts if part and not part.startswith(MARK)) if own else (text,)
        return cls(tuple(one for one in others if one), own[-1] if own else "")

    def with_own(self, own: str) -> str:
        """The text with another word of the agent's; without one if it is empty."""
        return _BETWEEN.join((*self.others, *((own,) if own else ())))

    @property
    def is_held(self) -> bool:
        """Whether the job was held for the agent and no decision was made since."""
        return self.own == HELD_MARK

    @property
    def decision(self) -> str:
        """The decision; empty if there was none."""
        return "" if self.is_held else self.own.removeprefix(MARK).partition("@")[0]

    def pins(self, required: str) -> bool:
        """Whether the nodes that a job requires are those that the agent prescribed."""
        pinned = self.own.partition("@")[2]
        return bool(pinned and required) and set(expanded_nodes(pinned) or ()) == set(
            expanded_nodes(required) or ()
        )
