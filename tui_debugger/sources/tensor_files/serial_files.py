"""Files that msprobe's ``acl_save`` writes: ``hidden_0.pt``, ``logits_1.pt``, ``hidden_2.pt``.

One number counts all files of a process. Where the same names repeat in the same order, each repetition is a step, and
a name is one node. Files of ``torch.save`` may have such names (``layer_0.pt``); their bytes differ, because PyTorch's
C++ library writes the values before the pickle.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from tui_debugger import opener

_SERIAL: Final = re.compile(r"(.+)_(\d{1,18})\.pt")
_FIRST_RECORD: Final = b"archive/data/"
_HEAD: Final = 30
"""Bytes before the name of the first record."""


def serial_files(directory: str, names: Iterable[str]) -> dict[str, tuple[str, int]]:
    """Name without the number, and step, of each file; empty where the names tell no steps."""
    found = sorted((int(says[2]), says[1], name) for name in names if (says := _SERIAL.fullmatch(name)) is not None)
    bases = [base for _, base, _ in found]
    every = len(set(bases))
    first = found[0][0] if found else 0
    in_turn = [number for number, _, _ in found] == list(range(first, first + len(found)))
    again = all(base == bases[at % every] for at, base in enumerate(bases)) and len(set(bases[:every])) == every
    if len(found) <= every or not in_turn or not again or not _is_of_library(f"{directory}/{found[0][2]}"):
        return {}
    return {name: (base, at // every) for at, (_, base, name) in enumerate(found)}


def _is_of_library(path: str) -> bool:
    try:
        return opener.first_bytes(path, len(_FIRST_RECORD), _HEAD) == _FIRST_RECORD
    except (OSError, ValueError):
        return False
