"""Names, paths and states of files that are columns."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from tui_debugger.sources.base import Names
from tui_debugger.sources.file_states import States, directory_states
from tui_debugger.sources.mindspore.lexicon import Int16, Int32, Int64, Lexicon

Indices = npt.NDArray[np.integer[Any]]


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

    def among(self, indices: Indices) -> list[tuple[int, bytes]]:
        """(position in ``indices``, name) of those that are asked for."""
        if not len(self.at):
            return []
        place = np.minimum(np.searchsorted(self.at, indices), len(self.at) - 1)
        found = np.flatnonzero(self.at[place] == indices)
        return [(int(position), self.names[int(place[position])]) for position in found]


NO_ODDITIES = Oddities(np.zeros(0, np.int64), Names.of([]))
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

    def paths(self, indices: Indices) -> list[bytes]:
        """Paths of files."""
        prefixes, devices, endings = self.lexicon.prefixes, self.lexicon.devices, self.lexicon.endings
        heads = [directory + b"/" for directory in self.directories]
        columns = (self.directory, self.prefix, self.device, self.timestamp, self.ending)
        parts = zip(*(column[indices].tolist() for column in columns), strict=True)
        paths = [heads[d] + prefixes[p] + devices[v] + b"%d" % t + endings[e] for d, p, v, t, e in parts]
        for position, name in self.odd.among(indices):
            paths[position] = heads[int(self.directory[indices[position]])] + name
        return paths

    def states(self, indices: Indices) -> States:
        """Sizes and modification times as they are now; -1, 0 without a file."""
        sizes, times = np.full(len(indices), -1, np.int64), np.zeros(len(indices), np.int64)
        real = np.flatnonzero(self.ending[indices] != NO_FILE)
        numbers = self.directory[indices[real]]
        for number in np.unique(numbers).tolist():
            at = real[numbers == number]
            sizes[at], times[at] = directory_states(self.directories[number], self._names(indices[at]))
        return sizes, times

    def _names(self, indices: Indices) -> list[bytes]:
        """Names as pieces to be joined, each name with the same number of pieces and a NUL at its end."""
        lexicon = self.lexicon
        pieces = [b"\0"] * (5 * len(indices))
        pieces[0::5] = map(lexicon.prefixes.__getitem__, self.prefix[indices].tolist())
        pieces[1::5] = map(lexicon.devices.__getitem__, self.device[indices].tolist())
        pieces[2::5] = [b"%d" % stamp for stamp in self.timestamp[indices].tolist()]
        pieces[3::5] = map(lexicon.endings.__getitem__, self.ending[indices].tolist())
        for position, name in self.odd.among(indices):
            pieces[5 * position : 5 * position + 4] = [name, b"", b"", b""]
        return pieces
