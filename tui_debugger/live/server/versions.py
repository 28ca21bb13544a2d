"""Which clients are understood: MindSpore 1.1 to 2.3, and our own."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from typing import Final

NEWEST: Final = (2, 3)
"""The last version of MindSpore with a client."""
VIEWS_NUMBERS: Final = (1, 5)
"""From here on clients answer requests for statistics and types."""
RIGHT_TOLERANCES: Final = (1, 6)
"""From here on clients read rtol before atol; older ones read them the other way round."""


class Admission(Enum):
    """What becomes of a client."""

    ADMITTED = "admitted"
    MISMATCH = "mismatch"
    """It says what it is and waits to be ended: its messages are not known here."""
    TOO_OLD = "too old"
    """It knows of no versions at all: it is told to exit."""


@dataclass(frozen=True, slots=True)
class Judged:
    """A client's version, judged.

    Attributes:
        admission: what becomes of it.
        version: major and minor; (0, 0) when unknown.
        warning: for an admitted client, what people should know, or empty.
        refusal: for one that is not, one sentence, or empty.
    """

    admission: Admission
    version: tuple[int, int]
    warning: str = ""
    refusal: str = ""


def judge(text: str) -> Judged:
    """Judges the version that a client of MindSpore gives; empty means 1.0, which gives none."""
    if not text:
        return Judged(
            Admission.TOO_OLD,
            (1, 0),
            refusal="MindSpore 1.0 or older: its debugger speaks other messages; 1.1 to 2.3 are understood",
        )
    found = re.match(r"(\d{1,4})\.(\d{1,4})", text)
    if found is None:
        return Judged(
            Admission.MISMATCH, (0, 0), refusal=f"a client of an unknown version ({text}); 1.1 to 2.3 are understood"
        )
    version = (int(found[1]), int(found[2]))
    if version < (1, 1):
        return Judged(
            Admission.TOO_OLD,
            version,
            refusal=f"MindSpore {text}: its debugger speaks other messages; 1.1 to 2.3 are understood",
        )
    if version[0] > NEWEST[0]:
        return Judged(Admission.MISMATCH, version, refusal=f"MindSpore {text} is not known; 1.1 to 2.3 are understood")
    if version[0] == NEWEST[0] and version > NEWEST:
        return Judged(
            Admission.ADMITTED, version, f"MindSpore {text} is newer than 2.3, the newest that this was made for"
        )
    return Judged(Admission.ADMITTED, version)
