"""The listings of one rank's steps: made when asked for, and whether they are still true."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tui_debugger.cache.store import DiskCache
from tui_debugger.model import Progress, ProgressFn
from tui_debugger.sources.mindspore.layout import Stamp, stamp
from tui_debugger.sources.mindspore.lexicon import Lexicon
from tui_debugger.sources.mindspore.listing import MAPPING, Listing, Part, Place, list_directory
from tui_debugger.sources.mindspore.names import decode, generation, split_prefix
from tui_debugger.sources.mindspore.remembered import RememberedListings
from tui_debugger.sources.mindspore.statcsv import FILE as STATISTICS

YOUNG_NS = 5 * 10**9
"""A directory changed more recently than this may change again within one tick of its clock."""
Stamps = tuple[Stamp, ...]
_GUESSES = 1000
"""So many names are looked at to guess the version that wrote them."""


@dataclass(frozen=True, slots=True)
class _State:
    """How the directories of a step looked when they were listed.

    Attributes:
        stamps: of the directories and of the files in them that are appended to.
        entries: how many entries they had.
        settled: no change can have escaped the stamps.
    """

    stamps: Stamps
    entries: int
    settled: bool


class StepListings:
    """Lists steps and remembers how their directories looked. Not thread-safe: its owner locks.

    Attributes:
        lexicon: what the numbers in all listings mean.
        generation: MindSpore versions that write such names; empty when they do not say.
        complaints: how often what was ignored, by directory.
    """

    def __init__(self, store: DiskCache | None = None) -> None:
        """Nothing is listed; ``store`` remembers listings of earlier sessions."""
        self._store = store
        self.generation = ""
        self.complaints: dict[bytes, dict[str, int]] = {}
        self._states: dict[int, _State] = {}
        self._kept: dict[int, Listing] = {}
        self._constants: dict[Path, tuple[Stamps, Part]] = {}
        self._missing: dict[int, tuple[tuple[Path, str, int | None], ...]] = {}
        self.forget_all()

    @property
    def steps(self) -> Iterable[int]:
        """The steps that were listed."""
        return self._states.keys()

    def listing(self, step: int, places: Sequence[Place], progress: ProgressFn) -> Listing:
        """The listing of a step, kept until it is dropped.

        Raises:
            CancelledError: from ``progress``.
        """
        if step not in self._kept:
            self._kept[step] = self._list(step, places, progress)
        return self._kept[step]

    def drop(self, step: int) -> None:
        """Frees a listing; whether the step changed stays known."""
        self._kept.pop(step, None)

    def forget(self, step: int) -> None:
        """Makes a step one that was never listed."""
        self._kept.pop(step, None)
        self._states.pop(step, None)
        self._missing.pop(step, None)

    def forget_all(self) -> None:
        """Makes all steps ones that were never listed."""
        self._kept.clear()
        self._states.clear()
        self._missing.clear()
        self._constants.clear()  # their numbers are those of the lexicon before
        self.lexicon = Lexicon()
        self._remembered = RememberedListings(self._store, self.lexicon) if self._store is not None else None

    def missing(self) -> list[tuple[Path, str, int | None]]:
        """(path, why, step or None for constants) of what could not be looked at in the steps that were listed."""
        return [each for found in list(self._missing.values()) for each in found]

    def changed(self, step: int, places: Sequence[Place]) -> bool:
        """Whether the directories of a listed step look different now."""
        state = self._states[step]
        if _stamps(places) != state.stamps:
            return True
        if state.settled:
            return False
        settled = not young(state.stamps)
        if sum(_count(path) for _, path, _ in places) != state.entries:
            return True
        self._states[step] = replace(state, settled=settled)
        return False

    def _list(self, step: int, places: Sequence[Place], progress: ProgressFn) -> Listing:
        expected = max((state.entries for state in self._states.values()), default=0)
        parts: list[Part] = []
        stamps: list[Stamp] = []
        for place in places:
            looks = place_stamps(place[1])
            parts.append(self._part(place, looks, progress, (sum(part.entries for part in parts), expected)))
            stamps += looks
        listing = Listing(self.lexicon, parts)
        self._states[step] = _State(tuple(stamps), listing.entries, not young(stamps))
        for part in parts:
            self.complaints[part.directory] = part.complaints
        self._missing[step] = tuple(
            (place[1] / os.fsdecode(name), why, None if place[2] else step)
            for place, part in zip(places, parts, strict=True)
            for name, why in part.missing or _nothing(place, part)
        )
        if not self.generation:
            self.generation = _generation(listing)
        return listing

    def _part(self, place: Place, looks: Stamps, progress: ProgressFn, done: tuple[int, int]) -> Part:
        """One directory: as it was listed before when it looks the same, else listed now."""
        shared = self._constants.get(place[1])
        if shared is not None and shared[0] == looks and not young(looks):  # the same constants in every step
            return shared[1]
        part = self._listed(place, looks, progress, done)
        if place[2]:
            self._constants[place[1]] = looks, part
        return part

    def _listed(self, place: Place, looks: Stamps, progress: ProgressFn, done: tuple[int, int]) -> Part:
        remembered, path = self._remembered, place[1]
        worthwhile = remembered is not None and not young(looks)
        if remembered is not None and worthwhile:
            progress(Progress(*done, f"listing {path.parent.name}/{path.name}"))
            number = self.lexicon.place(place[0].root_graph, place[2])
            part = remembered.recall(path, number, looks, progress)
            if part is not None:
                return part
        part = list_directory(self.lexicon, place, progress, done)
        if remembered is not None and worthwhile and place_stamps(path) == looks:
            remembered.keep(path, looks, part)
        return part


def _nothing(place: Place, part: Part) -> tuple[tuple[bytes, str], ...]:
    """A step's directory without a tensor: a copy without its files, or one that is about to be written."""
    held = len(part.timestamp) or (part.statistics is not None and len(part.statistics))
    return () if place[2] or held else ((b"", "no tensor in it"),)


def place_stamps(path: Path) -> Stamps:
    """What changes when the listing of a directory would."""
    return stamp(path), stamp(path / STATISTICS), stamp(path / MAPPING)


def young(stamps: Iterable[Stamp]) -> bool:
    """Whether something changed so recently that another change may look the same."""
    now = time.time_ns()
    return any(abs(now - each[0]) < YOUNG_NS for each in stamps)


def _stamps(places: Sequence[Place]) -> Stamps:
    return tuple(each for _, path, _ in places for each in place_stamps(path))


def _count(path: Path) -> int:
    try:
        with os.scandir(path) as entries:
            return sum(1 for _ in entries)
    except OSError:
        return 0


def _generation(listing: Listing) -> str:
    """The versions that write such names, from the first names that tell."""
    lexicon = listing.lexicon
    tokens = (token for token in lexicon.dtypes if token)
    token = decode(next(tokens, b""))
    names = (split_prefix(lexicon.prefix(number)[2])[1] for number in listing.prefixes[:_GUESSES].tolist())
    return next(filter(None, (generation(name, token) for name in names)), "")
