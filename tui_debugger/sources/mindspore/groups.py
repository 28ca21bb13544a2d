"""The files of a step by root graph and name, as the matcher takes them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b

import numpy as np

from tui_debugger.arrays import Int16, Int32, Int64, UInt8
from tui_debugger.sources.columns import latest, tensor_keys
from tui_debugger.sources.mindspore.listing import Listing
from tui_debugger.sources.mindspore.match import FileGroup
from tui_debugger.sources.mindspore.names import split_prefix


@dataclass(frozen=True, eq=False)
class Groups:
    """All files of one root graph, of duplicates the latest, by prefix.

    Attributes:
        root: number of the root graph.
        prefixes: numbers of the prefixes, ascending; one group each.
        texts: ``type.name`` of each group.
        ends: end of each group in the columns below.
        side, slot, timestamp, file: of the files, ``file`` is the number in the listing.
    """

    root: int
    prefixes: Int32
    texts: list[bytes]
    ends: Int64
    side: UInt8
    slot: Int16
    timestamp: Int64
    file: Int64

    @property
    def digest(self) -> bytes:
        """Equal digests mean equal groups in the same order, with the same file numbers."""
        hasher = blake2b(b"%d " % self.root + b"\0".join(self.texts), digest_size=16)
        for column in (self.ends, self.side, self.slot, self.timestamp, self.file):
            hasher.update(column.data)
        return hasher.digest()

    @cached_property
    def keys(self) -> tuple[tuple[str, str], ...]:
        """(operator type, operator name) of each group."""
        return tuple([split_prefix(text) for text in self.texts])

    def file_groups(self) -> list[FileGroup]:
        """One object per group."""
        sides, slots = self.side.tolist(), self.slot.tolist()
        stamps, files = self.timestamp.tolist(), self.file.tolist()
        found, start = [], 0
        for (op_type, op_name), end in zip(self.keys, self.ends.tolist(), strict=True):
            part = slice(start, end)
            members = tuple(zip(sides[part], slots[part], files[part], strict=True))
            found.append(FileGroup(op_type, op_name, members, min(stamps[part], default=0)))
            start = end
        return found


def groups_of(listing: Listing) -> dict[int, Groups]:
    """The groups of a listing by root graph; names with rows of statistics alone are groups without files."""
    files, lexicon, prefixes = listing.files, listing.lexicon, listing.prefixes
    kept = latest(tensor_keys(files.prefix, listing.side, listing.slot), files.timestamp)
    places = lexicon.places_of()[prefixes]
    roots = np.array([root for root, _ in lexicon.places] or [0])[places]
    bounds = np.searchsorted(files.prefix[kept], np.append(prefixes, len(lexicon.prefixes)))
    found = {}
    for root in dict.fromkeys(roots.tolist()):
        mine = np.flatnonzero(roots == root)
        counts = (bounds[1:] - bounds[:-1])[mine]
        of = kept[np.repeat(roots == root, bounds[1:] - bounds[:-1])]
        found[root] = Groups(
            root=root,
            prefixes=prefixes[mine],
            texts=[lexicon.prefixes[number] for number in prefixes[mine].tolist()],
            ends=np.cumsum(counts),
            side=listing.side[of],
            slot=listing.slot[of],
            timestamp=files.timestamp[of],
            file=of,
        )
    return found
