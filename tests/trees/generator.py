"""Plans trees by seed, and writes them: nothing but the seed decides."""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.trees import leaves, stories
from tests.trees.foreign import FOREIGN, link
from tests.trees.layouts import FOUND_AT_PATH_ONLY, LAYOUTS, states
from tests.trees.leaves import FORMATS, WRAPPINGS, Format

STYLES: Final = ("as its program does", "upper case", "hidden", "no suffix", "another suffix")
"""The ways to call the file of a stranger."""
OTHER_SUFFIXES: Final = (".bak", ".tmp", ".old", "~", ".1", ".dat", ".bin", ".txt", ".json", ".png", ".log")
PLACES: Final = ("in it", "in a new directory", "beside it")
"""Where a stranger lies: in a directory of the dump, in a new one inside it, in one above the dump."""
PLAIN: Final = ("grads", "optimizer", "backup", "old run", ".hidden", "weights/ema", "debug/deep/er", "logs", "samples")
"""Directories that no recorder makes there."""
NEW: Final = (
    *PLAIN,
    *("rank0", "Rank_1", "rank-2", "rank_7", "step_9", "checkpoint-5", "1", "constants", "dump_tensor_data"),
)
"""Those, and others whose names some recorder gives."""
KINDS: Final = (*((form.name, "") for form in FORMATS), *(("", wrapping) for wrapping in WRAPPINGS))
"""What a stranger is: a format by itself, or a wrapping around one that is drawn."""
TIMES: Final = 3
"""How often each kind of stranger lies in a dump of each layout."""
STRANGERS: Final = TIMES * len(LAYOUTS) * len(KINDS)
BAD: Final = range(STRANGERS + 20 * len(stories.STORIES))
HEALTHY: Final = range(8 * len(LAYOUTS))


@dataclass
class Tree:
    """A tree that was planned, and written where ``root`` is.

    Attributes:
        kinds: of files that are no tensors.
        classes: what it is an example of.
        bad: what is bad in it, for people.
        lines: its paths, and what they lead to.
    """

    kinds: list[str]
    classes: list[str] = field(default_factory=list)
    bad: str = ""
    lines: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return "\n".join([f"{', '.join(self.classes)}", f"bad: {self.bad or 'nothing'}", *self.lines])


@dataclass(frozen=True)
class Stranger:
    """One bad tensor in a file or directory that is no part of the dump around it."""

    layout: str
    form: Format
    wrapping: str
    style: str
    place: str

    @property
    def classes(self) -> list[str]:
        """What it is an example of."""
        return [self.layout, self.form.name, self.style, self.place, *([self.wrapping] if self.wrapping else [])]

    def write(self, root: Path, chance: random.Random) -> str:
        """Writes the dump and the stranger, and returns the stranger's path."""
        dump = root / "run 1" if self.place == "beside it" else root
        LAYOUTS[self.layout](dump)
        folders = [dump, *sorted(path for path in dump.rglob("*") if path.is_dir())]
        place = dump.parent if self.place == "beside it" else chance.choice(folders)
        if self.place == "in a new directory":
            place /= chance.choice(NEW)
        content = self.form.write()
        name = self.name(chance)
        if self.wrapping:
            ((_, data),) = content.items()
            name, content = (
                name + self.wrapping,
                {"": WRAPPINGS[self.wrapping](self.form.stem + self.form.suffix, data)},
            )
        leaves.write(place / name, content)
        return (place / name).relative_to(root).as_posix()

    def name(self, chance: random.Random) -> str:
        """The name of the file, without the suffix of a wrapping."""
        stem, suffix = self.form.stem, self.form.suffix
        if self.style == "upper case":
            return (stem + suffix).upper()
        if self.style == "hidden":
            return f".{stem}{suffix}"
        if self.style == "no suffix":
            return stem
        if self.style == "another suffix":
            return stem + chance.choice(OTHER_SUFFIXES)
        return stem + suffix


def drawn_from(seed: str) -> random.Random:
    """What is drawn again from the same seed."""
    return random.Random(seed)  # noqa: S311 - nothing is secret


def stranger(seed: int, chance: random.Random) -> Stranger:
    """The stranger of a seed: layouts and kinds take turns, the rest is drawn."""
    layout, (name, wrapping) = list(LAYOUTS)[seed % len(LAYOUTS)], KINDS[seed // len(LAYOUTS) % len(KINDS)]
    form = next((form for form in FORMATS if form.name == name), None) or chance.choice(leaves.ALONE)
    by_name = form.by_name or wrapping == ".zst"  # Python has nothing that unpacks it
    style = chance.choice(("as its program does", "hidden") if by_name else STYLES)
    places = PLACES[:2] if layout in FOUND_AT_PATH_ONLY else PLACES
    return Stranger(layout, form, wrapping, style, chance.choice(places))


def foreign(root: Path, chance: random.Random, kinds: Sequence[str]) -> None:
    """Writes files of other kinds into directories of a tree."""
    folders = [root, *sorted(path for path in root.rglob("*") if path.is_dir() and not path.is_symlink())]
    for kind in kinds:
        inner = chance.choice(folders) / chance.choice(["", chance.choice(PLAIN)])
        FOREIGN[kind](inner if chance.random() < 0.4 else root)


def classes_of(seed: int) -> list[str]:
    """What the bad tree of a seed is an example of; nothing is written to find out."""
    return _planned(seed)[1].classes


def bad(seed: int, base: Path) -> tuple[Path, Tree]:
    """Writes a tree with one bad tensor, and returns where it begins."""
    (chance, tree, found), root = _planned(seed), base / "tree"
    if isinstance(found, Stranger):
        tree.bad = found.write(root, chance)
    else:
        tree.bad = found(stories.Ground(root, base / "outside", chance))
    foreign(root, chance, tree.kinds)
    tree.lines = listing(root)
    return root, tree


def _planned(seed: int) -> tuple[random.Random, Tree, Stranger | stories.Story]:
    chance = drawn_from(f"bad {seed}")
    tree = Tree(chance.sample(list(FOREIGN), chance.randrange(3)))
    if seed >= STRANGERS:
        story = stories.STORIES[seed % len(stories.STORIES)]
        tree.classes = [story.__name__, *tree.kinds]
        return chance, tree, story
    found = stranger(seed, chance)
    tree.classes = [*found.classes, *tree.kinds]
    return chance, tree, found


def healthy(seed: int, base: Path) -> tuple[Path, Tree]:
    """Writes a tree without a bad tensor, with at least three kinds of other files, and returns where it begins."""
    chance, root = drawn_from(f"healthy {seed}"), base / "tree"
    layout = list(LAYOUTS)[seed % len(LAYOUTS)]
    tree = Tree(chance.sample(list(FOREIGN), chance.randint(3, 6)))
    above = chance.random() < 0.3 and layout not in FOUND_AT_PATH_ONLY
    dump = root / "run 1" if above else root
    LAYOUTS[layout](dump)
    tree.classes += [layout, *tree.kinds]
    if chance.random() < 0.3:
        tree.classes.append(links(dump, chance))
    if layout == "ranks" and chance.random() < 0.5:
        states(chance.choice(sorted(dump.glob("step_*/rank_*"))), 1)
        tree.classes.append("states")
    foreign(root, chance, tree.kinds)
    tree.lines = listing(root)
    return root, tree


def links(dump: Path, chance: random.Random) -> str:
    """Makes links in a dump that lead to what is looked at already."""
    folders = sorted(path for path in dump.iterdir() if path.is_dir())
    files = sorted(path for path in dump.rglob("*") if path.is_file())
    how = chance.choice(["latest", "loop", "to a file", "a hard link"])
    if how == "latest" and folders:
        link(dump / "latest", Path(folders[-1].name))
    elif how == "loop":
        link(dump / "self", Path())
    elif how == "a hard link":
        os.link(chance.choice(files), dump / "3f1d5c8e0b7a4f26")
    else:
        link(dump / "a link", chance.choice(files).relative_to(dump))
    return f"links: {how}"


def listing(root: Path) -> list[str]:
    """The paths of a tree, with what links lead to."""
    found = []
    for path in sorted(root.rglob("*")):
        if path.is_symlink():
            found.append(f"{path.relative_to(root)} -> {path.readlink()}")
        elif path.is_file():
            found.append(f"{path.relative_to(root)} ({path.stat().st_size})")
    return found
