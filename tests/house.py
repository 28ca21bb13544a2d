"""Measures the program: how much there is to read, which class names mean several things, what tests reach into.

    python -m tests.house                  a table, a row for each room (a package directly in ``tui_debugger``)
    python -m tests.house --json           the same as a document, with the names behind the numbers
    python -m tests.house --against REV    what changed since a git revision, before → after

Every column counts by one rule, which reads files and imports none of them:

- tokens: those of Python's ``tokenize`` without comments, line ends and indentation. A string is one token however long
  it is, docstrings and f-strings included, so that the number is the same with every version of Python.
- code: lines with a token that are not part of a docstring. "a line" is tokens by code lines.
- docstrings: lines of the docstrings of modules, classes and functions. comments: lines with a comment.
- homonyms: names of classes at the top level of more than one file. ``_Reader`` and ``Reader`` are the same name.
- below: test files (``test_*.py``) that name something below the door of the room, in an import or in a string such as
  ``monkeypatch.setattr`` takes. names: how many different things they name. The total counts a test file once.

Doors are the modules directly in ``tui_debugger``, the ``__init__`` of every room, and ``DOORS``. Only public names
belong to a door: those of ``__all__`` where there is one, else those without underscore that the module defines or
imports under the same name (``from x import A as A``). Every other module of a room lies below its door.
"""

from __future__ import annotations

import argparse
import ast
import io
import json
import re
import subprocess
import sys
import tarfile
import tokenize
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path, PurePosixPath
from typing import Final

ROOT: Final = Path(__file__).parents[1]
PROGRAM: Final = "tui_debugger"
TESTS: Final = "tests"
TOP: Final = "(top)"
"""The row of the modules directly in the program."""
DOORS: Final = (f"{PROGRAM}.live.client", f"{PROGRAM}.cli.main")
"""Doors inside a room: the side of the training, which users import, and the command line."""
LAYOUT: Final = frozenset({"COMMENT", "NL", "NEWLINE", "INDENT", "DEDENT", "ENCODING", "ENDMARKER"})
_DOTTED: Final = re.compile(rf"\b{PROGRAM}(?:\.[A-Za-z_]\w*)+")

Tree = Mapping[str, str]
"""The text of every Python file of the program and its tests, by its path from the root."""


@dataclass(frozen=True)
class Size:
    """How much there is to read in some files."""

    files: int = 0
    tokens: int = 0
    code: int = 0
    docstrings: int = 0
    comments: int = 0

    def __add__(self, other: Size) -> Size:
        """Returns the size of both together."""
        return Size(*(getattr(self, each.name) + getattr(other, each.name) for each in fields(Size)))


@dataclass
class House:
    """What was measured of one state of the program."""

    sizes: dict[str, Size] = field(default_factory=dict)
    """By room; the tests have a row, too."""
    homonyms: dict[str, list[str]] = field(default_factory=dict)
    """The files that define a class of a name, for each name with several files."""
    below: dict[str, list[str]] = field(default_factory=dict)
    """The names below a door that a test file uses."""

    def rows(self) -> dict[str, dict[str, int]]:
        """Returns the numbers of each room, of the total, and of the tests."""
        rooms = {room: size for room, size in self.sizes.items() if room != TESTS}
        rows = {}
        for room, size in rooms.items():
            names = {name for used in self.below.values() for name in used if room_of_name(name, rooms) == room}
            rows[room] = {
                **asdict(size),
                "homonyms": sum(any(room_of_file(file) == room for file in files) for files in self.homonyms.values()),
                "below": sum(not names.isdisjoint(used) for used in self.below.values()),
                "names": len(names),
            }
        rows["total"] = {
            **asdict(sum(rooms.values(), Size())),
            "homonyms": len(self.homonyms),
            "below": len(self.below),
            "names": len({name for used in self.below.values() for name in used}),
        }
        rows[f"{TESTS}/"] = asdict(self.sizes.get(TESTS, Size()))
        return rows


def working_tree(root: Path) -> Tree:
    """Reads the files that lie in a checkout."""
    paths = sorted(path for place in (PROGRAM, TESTS) for path in root.joinpath(place).rglob("*.py"))
    return {path.relative_to(root).as_posix(): path.read_text("utf-8") for path in paths}


def revision(root: Path, name: str) -> Tree:
    """Reads the files of a git revision, without a checkout."""
    command = ["git", "-C", str(root), "archive", "--format=tar", f"{name}^{{commit}}", PROGRAM, TESTS]
    packed = subprocess.run(command, capture_output=True, check=True).stdout
    tree = {}
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        for member in archive:
            if member.name.endswith(".py") and (file := archive.extractfile(member)) is not None:
                tree[member.name] = io.TextIOWrapper(file, "utf-8").read()
    return tree


def measure(tree: Tree) -> House:
    """Measures the program and its tests."""
    house = House()
    doors: dict[str, frozenset[str]] = {}
    modules = {module_of(path) for path in tree if path.startswith(f"{PROGRAM}/")}
    classes: dict[str, list[str]] = defaultdict(list)
    for path in sorted(tree, key=lambda path: (path.startswith(f"{TESTS}/"), path)):  # tests need the doors
        parsed = ast.parse(tree[path], filename=path)
        room = room_of_file(path)
        house.sizes[room] = house.sizes.get(room, Size()) + size_of(tree[path], parsed)
        if room != TESTS:
            module = module_of(path)
            if module.count(".") <= 1 or module in DOORS:
                doors[module] = public_names(parsed)
            for name in {each.name.lstrip("_") for each in parsed.body if isinstance(each, ast.ClassDef)}:
                classes[name].append(path)
        elif PurePosixPath(path).name.startswith("test_"):
            used = set(below_a_door(parsed, modules, doors))
            house.below |= {path: sorted(used)} if used else {}
    house.homonyms = {name: files for name, files in sorted(classes.items()) if len(files) > 1}
    return house


def module_of(path: str) -> str:
    """Returns the dotted name of a file."""
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def room_of_file(path: str) -> str:
    """Returns the row that a file belongs to."""
    parts = path.split("/")
    return TESTS if parts[0] == TESTS else f"{parts[1]}/" if len(parts) > 2 else TOP


def room_of_name(dotted: str, rooms: Iterable[str]) -> str:
    """Returns the row that something in the program belongs to."""
    room = f"{dotted.split('.')[1]}/"
    return room if room in rooms else TOP


def size_of(text: str, parsed: ast.Module) -> Size:
    """Counts tokens and lines of a file."""
    docstrings: set[int] = set()
    for node in ast.walk(parsed):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0] if node.body else None
            if isinstance(first, ast.Expr) and ast.get_docstring(node, clean=False) is not None:
                docstrings.update(range(first.lineno, (first.end_lineno or first.lineno) + 1))
    tokens = list(tokenize.generate_tokens(io.StringIO(text).readline))
    kinds = [tokenize.tok_name[token.type] for token in tokens]
    code: set[int] = set()
    for token, kind in zip(tokens, kinds, strict=True):
        if kind not in LAYOUT:
            code.update(range(token.start[0], token.end[0] + 1))
    return Size(1, counted(kinds), len(code - docstrings), len(docstrings), kinds.count("COMMENT"))


def counted(kinds: Iterable[str]) -> int:
    """Counts tokens of these kinds; Python 3.12 and later take an f-string apart, before it is one token."""
    number = depth = 0
    for kind in kinds:
        ends = kind.endswith("STRING_END")
        number += depth == 0 and kind not in LAYOUT
        depth += kind.endswith("STRING_START") - ends
    return number


def public_names(parsed: ast.Module) -> frozenset[str]:
    """Returns the names of a module that others may use."""
    names: set[str] = set()
    for node in parsed.body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.ImportFrom):
            names |= {alias.name for alias in node.names if alias.asname == alias.name}
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            bound = {each.id for target in targets for each in ast.walk(target) if isinstance(each, ast.Name)}
            if "__all__" in bound and node.value is not None:
                return frozenset(ast.literal_eval(node.value))
            names |= bound
    return frozenset(name for name in names if not name.startswith("_"))


def dotted_names(parsed: ast.Module) -> Iterator[str]:
    """Everything of the program that a test names: imports, and strings of which a part reads like a module's name."""
    for node in ast.walk(parsed):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield from _DOTTED.findall(node.value)


def below_a_door(parsed: ast.Module, modules: set[str], doors: Mapping[str, frozenset[str]]) -> Iterator[str]:
    """What a test names that no door has: a module below one, or a name that a door keeps to itself."""
    for dotted in dotted_names(parsed):
        parts = dotted.split(".")
        known = next((at for at in range(len(parts), 1, -1) if ".".join(parts[:at]) in modules), 0)
        if not known:  # a name of the package itself, which is a door, or another program
            continue
        module = ".".join(parts[:known])
        name = parts[known] if known < len(parts) else None
        if module not in doors or (name is not None and name not in doors[module]):
            yield module if name is None else f"{module}.{name}"


TITLES: Final = ("files", "tokens", "code", "a line", "docstrings", "comments", "homonyms", "below", "names")


def cell(row: Mapping[str, int] | None, title: str) -> str:
    """Returns what a table says in a column; a room that is not there has nothing of anything."""
    if row is None:
        return "0"
    if title == "a line":
        return f"{row['tokens'] / row['code']:.1f}" if row["code"] else "0"
    return f"{row[title]:,}" if title in row else ""


def table(cells: Mapping[str, Iterable[str]]) -> str:
    """Returns lines with the names of rows at the left and numbers at the right of their columns."""
    lines = [("", *TITLES), *((name, *row) for name, row in cells.items())]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "".join(
        f"{name:{widths[0]}}  {'  '.join(map(str.rjust, rest, widths[1:]))}".rstrip() + "\n" for name, *rest in lines
    )


def as_table(house: House) -> str:
    """Returns every room with its numbers."""
    return table({name: [cell(row, title) for title in TITLES] for name, row in house.rows().items()})


def as_comparison(before: House, after: House) -> str:
    """Returns the rooms of which a number changed, and the total."""
    old, new = before.rows(), after.rows()
    order = [*sorted({*old, *new} - {"total", f"{TESTS}/"}), "total", f"{TESTS}/"]
    cells = {}
    for name in order:
        if name == "total" or old.get(name) != new.get(name):
            pairs = [(cell(old.get(name), title), cell(new.get(name), title)) for title in TITLES]
            cells[name] = [one if one == other or not (one and other) else f"{one} → {other}" for one, other in pairs]
    return table(cells)


def as_document(house: House) -> dict[str, object]:
    """Returns the numbers, and the names behind them."""
    return {"rooms": house.rows(), "homonyms": house.homonyms, "below": house.below}


def main(arguments: list[str] | None = None, root: Path = ROOT) -> int:
    """Prints what was asked for."""
    parser = argparse.ArgumentParser(prog="python -m tests.house", description="Measures the program, room by room.")
    parser.add_argument("--json", action="store_true", help="a document instead of a table")
    parser.add_argument("--against", metavar="REV", help="compare with this git revision")
    asked = parser.parse_args(arguments)
    before = None
    if asked.against is not None:
        try:
            before = measure(revision(root, asked.against))
        except subprocess.CalledProcessError as error:
            parser.error(f"git cannot read {asked.against}: {error.stderr.decode(errors='replace').strip()}")
    after = measure(working_tree(root))
    if asked.json:
        both = {"before": as_document(before), "after": as_document(after)} if before else as_document(after)
        sys.stdout.write(json.dumps(both, indent=1) + "\n")
    else:
        sys.stdout.write(as_comparison(before, after) if before else as_table(after))
    return 0


if __name__ == "__main__":
    sys.exit(main())
