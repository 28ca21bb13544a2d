"""Files that msprobe's ``acl_save`` writes where the program says: ``hidden_0.pt``, ``logits_1.pt``, ``hidden_2.pt``.

One number counts all files of a process. Where the same names come again and again, in the same order, each time is
a step, and a name is one node. A file of ``torch.save`` may be called so, too (``layer_0.pt``): the bytes tell them
apart, for PyTorch's C++ library writes the values before the pickle.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from typing import Final

from tui_debugger import opener

_SERIAL: Final = re.compile(r"(.+)_(\d{1,18})\.pt")
_FIRST_RECORD: Final = b"archive/data/"
_HEAD: Final = 30
"""Bytes before the name of the first record."""


def serial_files(directory: str, names: Iterable[str]) -> dict[str, tuple[str, int]]:
    """Returns what each file is called without its number, and its step; nothing where they tell no steps."""
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
    """Tells whether PyTorch's C++ library wrote a file."""
    try:
        descriptor, _ = opener.open_regular(os.fspath(path))
        try:
            return opener.pread(descriptor, len(_FIRST_RECORD), _HEAD) == _FIRST_RECORD
        finally:
            opener.close(descriptor)
    except (OSError, ValueError):
        return False
