"""Something that usually leads to what was found, and what was measured for or against it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum


class Standing(IntEnum):
    """What the evidence says about a cause. Order is rank."""

    LIKELY = 0
    """Something that was measured here speaks for it."""
    POSSIBLE = 1
    """Nothing speaks against it."""
    UNKNOWN = 2
    """What would tell was not dumped."""
    RULED_OUT = 3
    """What was measured speaks against it."""

    @property
    def word(self) -> str:
        """``likely``, ``possible``, ``cannot be told``, ``ruled out``."""
        return ("likely", "possible", "cannot be told", "ruled out")[self]


@dataclass(frozen=True, slots=True)
class Cause:
    """Something that usually leads to what was found.

    Attributes:
        title: a few words.
        evidence: one sentence with the numbers of this tensor that say so.
        standing: what they say.
    """

    title: str
    evidence: str
    standing: Standing
