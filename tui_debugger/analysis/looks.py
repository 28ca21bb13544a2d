"""Many looks at once, as columns: what to read, what to compare it with, what to measure.

A batch is what one task of an executor gets; it is small, picklable and names only files.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tui_debugger.analysis.record import Need
from tui_debugger.arrays import Int32
from tui_debugger.model import ReadSpec

ONLY_COMPARED = -1
"""Need of a file that is read only because another one is compared with it."""


@dataclass(frozen=True, slots=True)
class Specs:
    """How several tensors are read: the columns of as many ``ReadSpec``.

    Attributes:
        paths: files as ``os.fsencode`` bytes, so that names of any encoding survive.
        kinds: the distinct specs, without their paths.
        kind: which of ``kinds`` describes each file.
    """

    paths: Sequence[bytes]
    kinds: tuple[ReadSpec, ...]
    kind: Int32

    @classmethod
    def of(cls, specs: Iterable[ReadSpec]) -> Specs:
        """Of specs one by one: not for many."""
        paths, kinds, kind = list[bytes](), dict[ReadSpec, int](), list[int]()
        for spec in specs:
            paths.append(os.fsencode(spec.path))
            kind.append(kinds.setdefault(dataclasses.replace(spec, path=""), len(kinds)))
        return cls(paths, tuple(kinds), np.array(kind, np.int32))

    def __len__(self) -> int:
        """Number of tensors."""
        return len(self.paths)


@dataclass(frozen=True, slots=True)
class Looks:
    """A batch of looks. Neighbours that are steps of one tensor, ascending, are read once each.

    Attributes:
        specs: the files, those that are only compared with included.
        previous: for each file the number (in ``specs``) of the one that holds the same tensor at the previous
            step, -1 without one. A smaller number is the rule, the number before its own the best.
        needs: the distinct needs.
        need: for each file which of ``needs`` it has, or ``ONLY_COMPARED``.
    """

    specs: Specs
    previous: Int32
    needs: tuple[Need, ...]
    need: npt.NDArray[np.int16]

    def __len__(self) -> int:
        """Number of files."""
        return len(self.specs)
