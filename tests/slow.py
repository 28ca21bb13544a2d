"""Which tests are slow: ``tests/slow.txt`` lists them, the everyday run leaves them to CI (see ``tests/thorough.py``).

The list is what a run of all tests measured. When the everyday run takes much over five minutes, write it anew:

    python -m pytest -q -n 2 tests --junitxml=all.xml
    python -m tests.slow all.xml

Each test stays that is quick, each function of tests of which one value is quick stays with the quickest value, and the
quickest test of a file stays whatever it takes.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

ROOT = Path(__file__).parent.parent
LIST = Path(__file__).with_suffix(".txt")
ONLY = 0.4
"""Seconds from which on a test is slow that stands for itself alone."""
ONE_OF_SEVERAL = 1.5
"""Seconds from which on the quickest value of a function is slow: below, it stands for all of them every day."""
ANOTHER = 0.15
"""Seconds from which on a test is slow whose function runs every day with another value."""


def function_of(name: str) -> str:
    """Returns the name of a test without its parameters."""
    return name.partition("[")[0]


def file_of(name: str) -> str:
    """Returns the file of a test, relative to the root."""
    return name.partition("::")[0]


@cache
def listed() -> frozenset[str]:
    """Returns the names on the list: of tests, and of functions that are slow with every value."""
    return frozenset(LIST.read_text("utf-8").splitlines())


def is_slow(name: str) -> bool:
    """Tells whether a test is on the list, by itself or by its function."""
    return name in listed() or function_of(name) in listed()


def mark(items: Iterable[pytest.Item]) -> None:
    """Gives the marker ``slow`` to the tests that are on the list."""
    for item in items:
        if is_slow(item.nodeid):
            item.add_marker("slow")


def choose(seconds: Mapping[str, float]) -> list[str]:
    """Returns what to list of tests that took so long: names of tests, or of a function if all its tests are slow."""
    of_file: dict[str, list[str]] = defaultdict(list)
    of_function: dict[str, list[str]] = defaultdict(list)
    for name in sorted(seconds, key=lambda name: (seconds[name], name)):
        of_file[file_of(name)].append(name)
        of_function[function_of(name)].append(name)
    stays = {those[0] for those in of_file.values()}
    stays |= {
        those[0] for those in of_function.values() if seconds[those[0]] < (ONE_OF_SEVERAL if len(those) > 1 else ONLY)
    }
    chosen = []
    for function, those in of_function.items():
        slow = [name for name in those if seconds[name] >= ANOTHER and name not in stays]
        chosen += [function] if slow == those else slow
    return sorted(chosen)


def measured(junit: Path) -> dict[str, float]:
    """Returns how many seconds each test took, by its name, from a file that ``--junitxml`` wrote."""
    seconds = {}
    for case in ET.parse(junit).iter("testcase"):  # noqa: S314 - pytest wrote it
        words = case.attrib["classname"].split(".")
        length = next(at for at in range(1, len(words) + 1) if ROOT.joinpath(*words[:at]).with_suffix(".py").is_file())
        name = "::".join(["/".join(words[:length]) + ".py", *words[length:], case.attrib["name"]])
        seconds[name] = float(case.attrib["time"])
    return seconds


def main() -> None:
    """Writes the list anew."""
    parser = argparse.ArgumentParser(prog="python -m tests.slow", description="Writes the list of slow tests anew.")
    parser.add_argument("junit", type=Path, help="what `pytest -q -n 2 tests --junitxml=FILE` wrote")
    seconds = measured(parser.parse_args().junit)
    names = choose(seconds)
    LIST.write_text("".join(f"{name}\n" for name in names), "utf-8")
    listed.cache_clear()
    every_day = sum(time for name, time in seconds.items() if not is_slow(name))
    print(f"{LIST}: {len(names):,} names")  # noqa: T201 - a command
    print(f"{every_day:.0f} of {sum(seconds.values()):.0f} seconds of tests every day")  # noqa: T201 - a command


if __name__ == "__main__":
    main()
