"""The everyday run leaves slow tests to CI: all that are listed exist, and of each file something runs every day."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import slow
from tests.thorough import ALL, LEFT

pytest_plugins = ["pytester"]


def whole_files(config: pytest.Config) -> list[pytest.Item]:
    """All tests of the files of this run, but of those of which it was asked for some tests only."""
    in_part = {slow.file_of(argument) for argument in config.args if "::" in argument}
    in_part |= {slow.file_of(item.nodeid) for item in config.stash[ALL] if config.getoption("lf", False)}
    return [item for item in config.stash[ALL] if slow.file_of(item.nodeid) not in in_part]


def test_every_name_on_the_list_is_that_of_a_test(request: pytest.FixtureRequest) -> None:
    """Looks at every test that was collected: a run of one file proves it of that file, a whole run of all."""
    names = {item.nodeid for item in whole_files(request.config)}
    names |= {slow.function_of(name) for name in names}
    files = {slow.file_of(name) for name in names}
    gone = {
        name
        for name in slow.listed()
        if name not in names and (slow.file_of(name) in files or not (slow.ROOT / slow.file_of(name)).is_file())
    }
    assert not gone, f"rename them in {slow.LIST}, or take them out"


def test_of_each_file_something_runs_every_day(request: pytest.FixtureRequest) -> None:
    left = set(request.config.stash.get(LEFT, []))
    items = [
        item for item in whole_files(request.config) if item not in left and not item.get_closest_marker("thorough")
    ]
    every_day = {slow.file_of(item.nodeid) for item in items if not slow.is_slow(item.nodeid)}
    never = {slow.file_of(item.nodeid) for item in items} - every_day
    assert not never, f"take the quickest test of each out of {slow.LIST}"


def test_the_list_is_sorted_and_names_no_test_twice() -> None:
    lines = slow.LIST.read_text("utf-8").splitlines()
    assert lines == sorted(set(lines))
    assert not [line for line in lines if line != slow.function_of(line) and slow.function_of(line) in lines]


def test_what_is_slow() -> None:
    seconds = {
        "a.py::test_long": 9.0,
        "a.py::test_some[1]": 0.1,
        "a.py::test_some[2]": slow.ANOTHER,
        "a.py::test_each[1]": slow.ONE_OF_SEVERAL,
        "a.py::test_each[2]": slow.ONE_OF_SEVERAL,
        "a.py::test_one_stays[2]": 1.4,
        "a.py::test_one_stays[1]": 1.3,
        "b.py::test_the_quickest": 3.0,
        "b.py::test_other": 4.0,
    }
    assert slow.choose(seconds) == [
        "a.py::test_each",
        "a.py::test_long",
        "a.py::test_one_stays[2]",
        "a.py::test_some[2]",
        "b.py::test_other",
    ]


JUNIT = """<testsuites><testsuite><testcase classname="tests.test_slow" name="test_x[a.b-&lt;]" time="0.5" />
<testcase classname="tests.test_slow.TestClass" name="test_y" time="2" /></testsuite></testsuites>"""


def test_a_report_names_tests_as_pytest_does(tmp_path: Path) -> None:
    (tmp_path / "all.xml").write_text(JUNIT)
    assert slow.measured(tmp_path / "all.xml") == {
        "tests/test_slow.py::test_x[a.b-<]": 0.5,
        "tests/test_slow.py::TestClass::test_y": 2.0,
    }


EXAMPLE = """
import pytest

@pytest.mark.parametrize("size", [80, 120, 200])
def test_sizes(size):
    pass

def test_long():
    pass

@pytest.mark.covering
@pytest.mark.parametrize("dump", ["one", "two"])
@pytest.mark.parametrize("place", ["x", "y"])
def test_places(dump, place):
    pass

@pytest.mark.thorough
def test_seldom():
    pass
"""
LISTED = ["tests/test_it.py::test_long", "tests/test_it.py::test_places[x-one]", "tests/test_it.py::test_sizes[200]"]
EVERY_DAY = {"test_sizes[80]", "test_sizes[120]", "test_places[y-two]"}
SLOW = {"test_sizes[200]", "test_long", "test_places[x-one]"}
OTHERS = {"test_places[x-two]", "test_places[y-one]", "test_seldom"}


RUNS = {
    "": EVERY_DAY,
    "-n 1": EVERY_DAY,
    "-n 1 -m slow": SLOW,
    "tests": EVERY_DAY | SLOW,
    "tests/test_it.py::test_long": {"test_long"},
    "-k sizes": {"test_sizes[80]", "test_sizes[120]", "test_sizes[200]"},
    "--thorough": EVERY_DAY | SLOW | OTHERS,
}
"""What runs of the example, by the words after ``pytest``."""


@pytest.mark.parametrize("words", RUNS)
def test_what_runs(pytester: pytest.Pytester, words: str) -> None:
    path = pytester.makefile(".txt", slow="\n".join(LISTED))
    conftest = slow.ROOT.joinpath("tests", "conftest.py").read_text("utf-8")
    pytester.makeconftest(f"{conftest}\nslow.LIST = Path({str(path)!r})\n")
    pytester.makeini("[pytest]\ntestpaths = tests\nmarkers = covering\n  thorough\n  slow\nasyncio_mode = auto")
    pytester.mkdir("tests").joinpath("test_it.py").write_text(EXAMPLE)
    lines = pytester.runpytest_subprocess("-v", *words.split()).outlines
    assert {line.split("::")[1].split()[0] for line in lines if "PASSED" in line} == RUNS[words]
