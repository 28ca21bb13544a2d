"""Whatever a program records is looked into, or counted as unread: a NaN in it is never called clean."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.live.client.recorded_values import LAYERS, LEAVES, NAN, OTHERS, UNREADABLE
from tui_debugger.live.client.unpacking import LONGEST_NAME, MOST, name_text, unpack
from tui_debugger.stats.blocks import measure_stats

Wrapping = Sequence[tuple[str, str]]
"""Names of layers, the innermost first, each with the name of what stands beside the value."""
WRAPPINGS = st.lists(st.tuples(st.sampled_from(sorted(LAYERS)), st.sampled_from(sorted(OTHERS))), max_size=4)


def _wrapped(value: Any, wrapping: Wrapping) -> Any:
    for layer, other in wrapping:
        value = LAYERS[layer](value, OTHERS[other]())
    return value


def _answer(value: Any) -> str:
    """What a debugger that watches for NaN and Inf would say."""
    found = unpack(value)
    if any(measure_stats(array)[0].bad for _, array in found.arrays):
        return "finding"
    return "doubt" if found.unread or found.beyond else "clean"


@pytest.mark.parametrize("leaf", LEAVES)
def test_a_nan_is_found_in_every_kind_of_value_and_its_healthy_twin_is_clean(leaf: str) -> None:
    assert _answer(LEAVES[leaf](NAN)) == "finding"
    assert _answer(LEAVES[leaf](3.0)) == "clean"


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("last", [3.0, NAN])
def test_a_nan_is_found_in_every_container(layer: str, last: float) -> None:
    for other in OTHERS:
        answer = _answer(LAYERS[layer](np.array([last]), OTHERS[other]()))
        assert answer == ("clean" if last == 3.0 else "finding"), other


@pytest.mark.parametrize("other", OTHERS)
def test_what_holds_no_bad_number_is_clean(other: str) -> None:
    assert _answer(OTHERS[other]()) == "clean"


@given(leaf=st.sampled_from(sorted(LEAVES)), wrapping=WRAPPINGS)
def test_a_nan_anywhere_is_found_and_the_healthy_twin_is_clean(leaf: str, wrapping: Wrapping) -> None:
    assert _answer(_wrapped(LEAVES[leaf](NAN), wrapping)) == "finding"
    assert _answer(_wrapped(LEAVES[leaf](3.0), wrapping)) == "clean"


@given(kind=st.sampled_from(sorted(UNREADABLE)), wrapping=WRAPPINGS)
def test_what_cannot_be_looked_into_is_a_doubt_anywhere(kind: str, wrapping: Wrapping) -> None:
    assert _answer(_wrapped(UNREADABLE[kind](), wrapping)) == "doubt"


@pytest.mark.skipif(np.dtype(np.longdouble).itemsize <= 8, reason="long double is float64 here")
@pytest.mark.parametrize("bad", [False, True])
def test_what_is_finite_but_beyond_float64_is_a_doubt_and_no_infinity(bad: bool) -> None:
    value = np.array([1, np.longdouble("1e4000"), np.inf if bad else 2])
    assert _answer(value) == ("finding" if bad else "doubt")


def test_an_iterator_is_left_as_it_is() -> None:
    numbers: Iterator[int] = iter([1, 2])
    assert _answer({"batch": numbers}) == "doubt"
    assert list(numbers) == [1, 2]


@pytest.mark.parametrize("bad", [False, True])
def test_a_value_that_is_too_large_or_too_deep_is_a_doubt(bad: bool) -> None:
    deep: Any = np.array([NAN if bad else 1.0])
    for _ in range(200):
        deep = [deep, "a"]
    assert _answer(deep) == "doubt"
    wide = {number: np.array([NAN if bad and number > MOST else 1.0]) for number in range(MOST + 10)}
    assert _answer(wide) == "doubt"
    doubled: Any = [np.array([1.0])]
    for _ in range(40):
        doubled = [doubled, doubled]  # 2 to the power of 40 arrays
    assert _answer(doubled) == "doubt"


def test_a_long_list_of_numbers_is_one_array() -> None:
    (found,) = unpack([float(number) for number in range(10 * MOST)]).arrays
    assert (found[0], found[1].shape) == ("", (10 * MOST,))


def test_every_array_has_a_path_below_the_name() -> None:
    value = {"image": np.ones(2), "meta": {"loss": 0.5, "parts": [np.ones(1), 2.0, "a", np.ones(3)]}, 3: None}
    assert [path for path, _ in unpack(value).arrays] == [
        *("/image", "/meta/loss", "/meta/parts", "/meta/parts/0", "/meta/parts/3"),
    ]


def test_nothing_is_kept_of_a_buffer() -> None:
    buffer = bytearray(8)
    unpack([memoryview(buffer).cast("d"), buffer])
    gc.collect()
    buffer.append(1)  # an array that still looks at it would forbid that


@given(leaf=st.sampled_from(sorted(LEAVES)), last=st.sampled_from([3.0, NAN]))
def test_what_a_program_wants_of_warnings_and_errors_changes_nothing(leaf: str, last: float) -> None:
    with np.errstate(all="raise"), warnings.catch_warnings():
        warnings.simplefilter("error")
        assert _answer(LEAVES[leaf](last)) == ("clean" if last == 3.0 else "finding")


# -- names -------------------------------------------------------------------------------------------------


@given(st.one_of(st.text(), st.binary(), st.integers(), st.floats(), st.none(), st.tuples(st.text())))
def test_any_name_becomes_text_that_files_and_messages_can_hold(name: Any) -> None:
    text = name_text(name)
    assert text == name_text(name) == name_text(text)
    assert text.isprintable()
    assert 0 < len(text) <= LONGEST_NAME
    assert text.encode("utf-8")
    assert not text.startswith("/")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("encoder/block0", "encoder/block0"),
        (7, "7"),
        (None, "None"),
        ("", "unnamed"),
        ("a\0b\nc", "a\\x00b\\nc"),
        ("\udc80", "\\udc80"),
        ("//a//b/", "a/b"),
        (" a b / ", "a b"),
        ("*", "\\*"),
    ],
)
def test_names(name: Any, text: str) -> None:
    assert name_text(name) == text


def test_long_names_are_told_apart() -> None:
    assert name_text("a" * 10_000) != name_text("a" * 10_001)
