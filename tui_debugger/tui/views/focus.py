"""What a view is about: one tensor of one step of one rank, and the hit it was reached from."""

from __future__ import annotations

from dataclasses import dataclass

from tui_debugger.model import Hit, TensorKey


@dataclass(frozen=True, slots=True)
class Focus:
    """The tensor under the cursor when a view was opened.

    Attributes:
        key: the tensor.
        row: the node's row in the node table of the tensor's rank.
        hit: what the watchpoints found on it, when it was reached from the hit list.
        at: full index of the element to look at; None for none in particular.
    """

    key: TensorKey
    row: int
    hit: Hit | None = None
    at: tuple[int, ...] | None = None

    @classmethod
    def of_hit(cls, hit: Hit) -> Focus:
        """The tensor of a hit."""
        return cls(hit.key, hit.row, hit)

    def at_step(self, step: int) -> Focus:
        """The same tensor at another step: what was found there is another question."""
        return self if step == self.key.step else Focus(self.key.at_step(step), self.row, at=self.at)
