"""What runs every day, what in CI as well, and what only with ``pytest --thorough``: nothing is left out of all three.

- Every day, ``pytest``: all but what follows.
- In CI after that, ``pytest -m slow``: tests that were measured to take long, see ``tests/slow.py``. Of each file some
  test runs every day. Whoever names a file, a directory or a test gets all of it, slow or not.
- ``pytest --thorough``: also the combinations, values and examples that the marks below leave out.

A test of several lists (dump x command, layout x operation) says ``@pytest.mark.covering``: every day it runs on a
part of the combinations in which every value of every list occurs, and on all of them in a thorough run.
``@pytest.mark.covering("dump", "command")`` keeps every pair of these two lists as well. On a class it is said of each
test. Where the tests of a file share a list (the sizes of a terminal), ``@pytest.mark.turns("size")`` lets them take
turns: every day each test runs with one of them, and all of them occur in the file. A test that expects something else
of each size is not marked so. ``tests/test_thorough.py`` proves that no value is lost. Of a long list of numbers
(seeds, places) ``few`` run every day, spread over the list, and of a list that one test goes through a ``share``;
properties are tried with fewer examples.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from itertools import combinations
from typing import Any, TypeVar

import pytest
from hypothesis import settings

T = TypeVar("T")
SHARE = 8
"""How many times as many examples a thorough run tries."""
ALL = pytest.StashKey[list[pytest.Item]]()
"""All tests that this run found."""
LEFT = pytest.StashKey[list[pytest.Item]]()
"""Those of them that are left to a thorough run."""
ALTERNATING = ("measured_by",)
"""Fixtures whose values take turns among the combinations of a test. That both ways give the same bits, for each type
and length, has tests of its own."""
_thorough = False


def choose(thorough: bool) -> None:
    """Called before any module of tests is imported. No example has a deadline: machines are slow at times."""
    global _thorough  # noqa: PLW0603 - decorators of tests, which know no configuration, ask for it
    _thorough = thorough
    for name, count in (("everyday", 20), ("thorough", 100)):
        settings.register_profile(name, max_examples=count, deadline=None)
    settings.load_profile("thorough" if thorough else "everyday")


def everyday(config: pytest.Config) -> bool:
    """Tells whether the tests of every day are asked for: no file, directory or test, nothing else that chooses."""
    options = config.option
    chosen = options.thorough or options.markexpr or options.keyword or getattr(options, "lf", False)
    return config.args_source is pytest.Config.ArgsSource.TESTPATHS and not chosen


def examples(count: int, **others: Any) -> settings:
    """Settings of a property: so many examples in a thorough run, an eighth of them (but 10) every time."""
    return settings(max_examples=count if _thorough else min(count, max(10, count // SHARE)), deadline=None, **others)


def few(values: Iterable[Any], count: int) -> list[Any]:
    """Parameters: ``count`` of them, spread evenly from first to last, run every time; all do in a thorough run."""
    every = list(values)
    kept = {round(i * (len(every) - 1) / max(count - 1, 1)) for i in range(count)} if every else set()
    return [value if i in kept else _later(value) for i, value in enumerate(every)]


def share(values: Sequence[T], count: int, start: int = 0) -> Sequence[T]:
    """What one test goes through one by one: every ``count``th from ``start`` on every time; all in a thorough run."""
    return values if _thorough else values[start % count :: count]


Part = tuple[tuple[str, Hashable], ...]
"""One value of one list, or a value of each of two lists."""


def parts(combination: Mapping[str, Hashable], pair: Sequence[str] = ()) -> set[Part]:
    """Returns what a combination shows: each of its values, and each two of the lists of which every pair is wanted."""
    together = [tuple((name, combination[name]) for name in two) for two in combinations(pair, 2)]
    return {(value,) for value in combination.items()} | set(together)


def covering(every: Sequence[Mapping[str, Hashable]], pair: Sequence[str] = (), start: int = 0) -> list[int]:
    """Returns which combinations run every day: in them every value occurs, and every pair of the lists of ``pair``.

    Takes the combination that shows most of what is not shown yet, again and again; of several the one with values that
    were taken least, and the first of them from ``start`` on, so that the tests of a file do not all take the same.
    """
    shown = [parts(combination, pair) for combination in every]
    missing = set().union(*shown)
    first = start % max(len(every), 1)
    order = [*range(first, len(every)), *range(first)]
    taken: Counter[Part] = Counter()
    kept = []
    while missing:
        news = [len(missing & shown[at]) for at in order]
        most = max(news)
        best = min(
            (at for at, new in zip(order, news, strict=True) if new == most),
            key=lambda at: sum(taken[part] for part in shown[at]),
        )
        kept.append(best)
        missing -= shown[best]
        taken.update(shown[best])
    return sorted(kept)


def left_to_thorough(items: Sequence[pytest.Item]) -> list[pytest.Item]:
    """Returns the tests that run in a thorough run only: those marked so, and combinations that ``covering`` leaves."""
    left = [item for item in items if item.get_closest_marker("thorough")]
    every: dict[str, list[pytest.Item]] = {}
    for item in items:
        if not item.get_closest_marker("thorough") and (group := group_of(item)):
            every.setdefault(group, []).append(item)
    number: Counter[str] = Counter()
    for group, those in every.items():
        file = group.partition("::")[0]
        kept = set(covering([values_of(item) for item in those], pair_of(those[0]), number[file]))
        number[file] += 1
        left += [item for at, item in enumerate(those) if at not in kept]
    return left


def group_of(item: pytest.Item) -> str:
    """Returns a name for all the tests of which a part runs every day together; nothing where all of them run."""
    if item.get_closest_marker("turns"):
        return item.nodeid.partition("::")[0]
    return item.nodeid.partition("[")[0] if item.get_closest_marker("covering") or alternating(item) else ""


def alternating(item: pytest.Item) -> tuple[str, ...]:
    """Returns the fixtures of a test whose values take turns, where no mark says otherwise."""
    call = getattr(item, "callspec", None)
    marked = item.get_closest_marker("turns") or item.get_closest_marker("covering")
    return tuple(name for name in ALTERNATING if call and name in call.params and not marked)


def pair_of(item: pytest.Item) -> tuple[str, ...]:
    """Returns the lists of which a test wants every pair, by the names that ``values_of`` gives them."""
    marker = item.get_closest_marker("covering")
    return tuple(
        next(name for name in values_of(item) if word in name.split(",")) for word in (marker.args if marker else ())
    )


def values_of(item: pytest.Item) -> dict[str, Hashable]:
    """Returns which value of each list a test has, of parameters and of fixtures; parameters of one list are one.

    Lists of a test whose sizes take turns are its own, all but the list of sizes; the test itself is a value of a list.
    """
    call = getattr(item, "callspec", None)
    given = {name: id(value) for name, value in call.params.items()} if call else {}
    lists = [mark.args[0] for mark in item.iter_markers("parametrize")]
    names = [[name.strip() for name in each.split(",")] if isinstance(each, str) else list(each) for each in lists]
    alone = sorted(given.keys() - {name for those in names for name in those})
    values = {",".join(those): tuple(given[name] for name in those) for those in [*names, *([name] for name in alone)]}
    if ways := alternating(item):
        own = tuple((name, value) for name, value in values.items() if name not in ways)
        return {"its own": own, **{name: values[name] for name in ways}}
    shared = item.get_closest_marker("turns")
    if not shared:
        return values
    test = item.nodeid.partition("[")[0]
    own = {f"{test} {name}": value for name, value in values.items() if name not in shared.args}
    taking = {name: tuple(call.params[each] for each in name.split(",")) for name in shared.args if call}
    return {"test": test, **own, **taking}


def later(*values: Any, id: str | None = None) -> Any:  # noqa: A002 - as pytest.param has it
    """A parameter that runs in a thorough run only."""
    return pytest.param(*values, marks=pytest.mark.thorough, id=id)


def _later(value: Any) -> Any:
    if isinstance(value, tuple) and hasattr(value, "marks"):  # made by pytest.param
        return pytest.param(*value.values, marks=[*value.marks, pytest.mark.thorough], id=value.id)
    return later(*value) if isinstance(value, tuple) else later(value)
