"""Names, paths and states of files that are columns."""

from __future__ import annotations

import os
from dataclasses import dataclass, field

import numpy as np

from tui_debugger.arrays import Int16, Int32, Int64, Integers
from tui_debugger.sources.base import Names
from tui_debugger.sources.file_states import States, directory_states
from tui_debugger.sources.mindspore.lexicon import Lexicon


class Oddities:
    """The few names that are kept whole: those from ``mapping.csv`` and those with zeros before a timestamp."""

    __slots__ = ("at", "names")

    def __init__(self, at: Int64, names: Names) -> None:
        """``at`` are the numbers of the files, ascending."""
        self.at, self.names = at, names

    @classmethod
    def sorted(cls, at: Int64, names: Names) -> Oddities:
        """From numbers in any order."""
        if not len(at):
            return NO_ODDITIES
        if (at[1:] > at[:-1]).all():
            return cls(at, names)
        by = np.argsort(at)
        return cls(at[by], Names.of([names[number] for number in by.tolist()]))

    def __len__(self) -> int:
        """Number of them."""
        return len(self.at)

    def find(self, index: int) -> bytes | None:
        """The name of a file, None when it is none of these."""
        place = int(np.searchsorted(self.at, index)) if len(self.at) else 0
        return self.names[place] if place < len(self.at) and self.at[place] == index else None

    def among(self, indices: Integers) -> list[tuple[int, bytes]]:
        """(position in ``indices``, name) of those that are asked for."""
        if not len(self.at):
            return []
        place = np.minimum(np.searchsorted(self.at, indices), len(self.at) - 1)
        found = np.flatnonzero(self.at[place] == indices)
        return [(int(position), self.names[int(place[position])]) for position in found]


NO_ODDITIES = Oddities(np.zeros(0, np.int64), Names.of([]))
_BATCH = 1 << 14
"""So many names are made at once: those of a step with a million files would take 200 MB."""
NO_FILE = -1
"""In place of an ending: there is no file, only a row of statistics."""


@dataclass(frozen=True)
class Files:
    """Files as numbers of a lexicon.

    Attributes:
        prefix, device, ending, timestamp: parts of the names; an ending may be ``NO_FILE``.
        directory: index into ``directories``.
        directories: as ``os.fsencode`` bytes.
        odd: names that the parts do not spell.
    """

    lexicon: Lexicon = field(repr=False)
    prefix: Int32
    device: Int32
    ending: Int32
    timestamp: Int64
    directory: Int16
    directories: tuple[bytes, ...]
    odd: Oddities = NO_ODDITIES

    def __len__(self) -> int:
        """Number of files."""
        return len(self.prefix)

    def path(self, index: int) -> str:
        """Path of a file; invalid UTF-8 survives as surrogates."""
        lexicon, head = self.lexicon, self.directories[int(self.directory[index])] + b"/"
        odd = self.odd.find(index)
        if odd is not None:
            return os.fsdecode(head + odd)
        prefix, device = lexicon.prefixes[int(self.prefix[index])], lexicon.devices[int(self.device[index])]
        ending = lexicon.endings[int(self.ending[index])]
        return os.fsdecode(head + prefix + device + b"%d" % int(self.timestamp[index]) + ending)

    def paths(self, indices: Integers) -> list[bytes]:
        """Paths of files."""
        heads = [directory + b"/" for directory in self.directories]
        if len(heads) == 1:
            return [heads[0] + name for name in self._names(indices)]
        return [heads[d] + name for d, name in zip(self.directory[indices].tolist(), self._names(indices), strict=True)]

    def states(self, indices: Integers) -> States:
        """Sizes and modification times as they are now; -1, 0 without a file."""
        sizes, times = np.full(len(indices), -1, np.int64), np.zeros(len(indices), np.int64)
        real = np.flatnonzero(self.ending[indices] != NO_FILE)
        numbers = self.directory[indices[real]]
        for number in np.unique(numbers).tolist():
            mine = real[numbers == number]
            for start in range(0, len(mine), _BATCH):
                at = mine[start : start + _BATCH]
                sizes[at], times[at] = directory_states(self.directories[number], self._names(indices[at]))
        return sizes, times

    def _names(self, indices: Integers) -> list[bytes]:
        prefixes, devices, endings = self.lexicon.prefixes, self.lexicon.devices, self.lexicon.endings
        columns = (self.prefix, self.device, self.timestamp, self.ending)
        parts = zip(*(column[indices].tolist() for column in columns), strict=True)
        names = [prefixes[p] + devices[v] + b"%d" % t + endings[e] for p, v, t, e in parts]
        for position, name in self.odd.among(indices):
            names[position] = name
        return names
