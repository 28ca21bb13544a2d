"""Watchpoints as one line of text."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.watch.expressions import expressions
from tui_debugger.errors import BadWatchpointError
from tui_debugger.model import CATEGORY_WORDS, NodeKind, NodeSelection, NodeSelector, Watchpoint
from tui_debugger.watch.condition_table import CONDITIONS, ParamSpec, by_abbr, validate
from tui_debugger.watch.text import (
    format_selection,
    format_watch,
    parse_selection,
    parse_watch,
    target_selection,
)


def clause(kind: str, text: str) -> NodeSelector:
    return NodeSelector(NodeKind(kind), text)


def test_a_condition_alone_covers_its_target_category() -> None:
    condition, params, selection = parse_watch("WL max_gt=3")
    assert (condition, params) == ("weight_too_large", (("max_gt", 3.0),))
    assert selection == NodeSelection((clause("category", "weight"),)) == target_selection(by_abbr("WL"))


def test_clauses_are_separated_by_commas_and_excluded_by_a_minus() -> None:
    _, _, selection = parse_watch("TO @ category=weight, scope=Default/net , -type=ReLU, - node=a.b, Mul-op\\d+$")
    assert selection.include == (
        clause("category", "weight"),
        clause("scope", "Default/net"),
        clause("regex", "Mul-op\\d+$"),
    )
    assert selection.exclude == (clause("type", "ReLU"), clause("node", "a.b"))


def test_only_excluding_clauses_take_away_from_the_target() -> None:
    assert parse_watch("GE @ -bias")[2] == NodeSelection((clause("category", "gradient"),), (clause("regex", "bias"),))


def test_an_empty_selection_covers_nothing_yet() -> None:
    assert parse_watch("TO @")[2] == NodeSelection()
    assert format_watch(Watchpoint(1, "tensor_overflow")) == "TO @"


@pytest.mark.parametrize(
    ("text", "pattern"),
    [
        (r"a\,b", "a,b"),
        (r"a\\,b", "a\\|b"),
        (r"a\\\,b", "a\\,b"),
        (r"\d{1\,2}\.w", r"\d{1,2}\.w"),
        (r"re=x=1", "x=1"),
        (r're=" -a,\"b\\ "', ' -a,"b\\ '),
        (r"x[@]y", "x[@]y"),
    ],
)
def test_backslashes_escape_commas_only(text: str, pattern: str) -> None:
    expected = [clause("regex", part) for part in pattern.split("|")]
    if "\\|" in pattern:  # a separator: the first part would be a broken regular expression
        with pytest.raises(BadWatchpointError, match="regular expression"):
            parse_selection(text)
        return
    assert list(parse_selection(text).include) == expected


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("", "starts with its condition"),
        ("@ category=weight", "starts with its condition"),
        ("XX", "no condition"),
        ("TL 5", "name=value"),
        ("TL max_gt", "name=value"),
        ("TL max_gt=", "finite number"),
        ("TL max_gt=x", "finite number"),
        ("TL foo=1", "no parameter"),
        ("TL max_gt=1 max_gt=1", "twice"),
        ("TO @ category=foo", "no category"),
        ("TO @ category=", "empty"),
        ("TO @ a,,b", "empty"),
        ("TO @ -", "empty"),
        ("TO @ [", "regular expression"),
        ("TO @ (((", "regular expression"),
        ('TO @ node="abc', "not closed"),
    ],
)
def test_mistakes_are_named(text: str, part: str) -> None:
    with pytest.raises(BadWatchpointError, match=part):
        parse_watch(text)


def _value(spec: ParamSpec) -> st.SearchStrategy[float | bool | str]:
    if spec.kind == "expression":
        return expressions.map(lambda expression: expression.text)
    if spec.kind == "bool":
        return st.booleans()
    low = None if spec.low == -float("inf") else spec.low
    high = None if spec.high == float("inf") else spec.high
    return st.floats(low, high, exclude_min=spec.low_open, allow_nan=False, allow_infinity=False)


@st.composite
def watchpoints(draw: st.DrawFn) -> Watchpoint:
    condition = draw(st.sampled_from(list(CONDITIONS.values())))
    checks = [spec for spec in condition.params if spec.check]
    chosen = draw(st.lists(st.sampled_from(checks), unique=True, min_size=1)) if checks else []
    params = {spec.name: draw(_value(spec)) for spec in chosen}
    if any(spec.needs for spec in chosen):
        bounds = sorted(draw(st.tuples(*[st.floats(allow_nan=False, allow_infinity=False)] * 2)))
        params |= dict(zip(("range_start_inclusive", "range_end_inclusive"), bounds, strict=True))
    if chosen and not any(spec.visible for spec in chosen):
        visible = next(spec for spec in checks if spec.visible)
        params[visible.name] = draw(_value(visible))
    return Watchpoint(1, condition.id, validate(condition.id, params), draw(selections()))


def _selectors() -> st.SearchStrategy[NodeSelector]:
    text = st.text(min_size=1) | st.text('\\,-"@= a', min_size=1)
    kinds = st.sampled_from([NodeKind.NODE, NodeKind.SCOPE, NodeKind.TYPE])
    regex = st.sampled_from(["", r"\d+", r"a\,b", "category=weight", " x ", "-x", '"q"', "\\\\", r"\\,", "re=", "a@b"])
    category = st.sampled_from(sorted(CATEGORY_WORDS))
    return (
        st.builds(NodeSelector, kinds, text)
        | st.builds(NodeSelector, st.just(NodeKind.REGEX), regex)
        | st.builds(NodeSelector, st.just(NodeKind.CATEGORY), category)
    )


def selections() -> st.SearchStrategy[NodeSelection]:
    some = st.lists(_selectors(), min_size=1, max_size=4).map(tuple)
    rest = st.lists(_selectors(), max_size=3).map(tuple)
    return st.just(NodeSelection()) | st.builds(NodeSelection, some, rest)


@given(watchpoints())
def test_text_of_any_watchpoint_gives_it_back(watchpoint: Watchpoint) -> None:
    parsed = parse_watch(format_watch(watchpoint))
    assert parsed == (watchpoint.condition, watchpoint.params, watchpoint.selection)


@given(selections())
@example(NodeSelection((clause("node", "\\"), clause("node", "x"))))
def test_text_of_any_selection_gives_it_back(selection: NodeSelection) -> None:
    assert parse_selection(format_selection(selection)) == selection


@given(st.text() | st.text('TLO @=,-"\\1.amxgt_'))
def test_any_text_is_read_or_refused(text: str) -> None:
    with contextlib.suppress(BadWatchpointError):
        parse_watch(text)


@pytest.mark.parametrize(
    ("typed", "means"),
    [
        ("max > 100", "TL max_gt=100"),
        ("min<-1e3", "TS min_lt=-1000"),
        ("abs_mean > 3 @ category=weight", "TL abs_mean_gt=3 @ category=weight"),
        ("zero_percentage >= 50", "TZ zero_percentage_ge=50"),
        ("norm > 10", "EX norm > 10"),
        ("max > 6*std", "EX max > 6*std"),
        ("EX max > 3", "EX max > 3"),
        ("TL max_gt=3", "TL max_gt=3"),
    ],
)
def test_a_comparison_is_understood_as_it_is_typed(typed: str, means: str) -> None:
    assert parse_watch(typed) == parse_watch(means)


@pytest.mark.parametrize("typed", ["max", "max >", "nothing > 3", "> 3", ""])
def test_what_is_no_comparison_is_refused(typed: str) -> None:
    with pytest.raises(BadWatchpointError):
        parse_watch(typed)


def test_a_mistake_in_a_comparison_reads_the_same_with_and_without_its_condition() -> None:
    said = set()
    for condition in ("EX ", "ex ", ""):
        with pytest.raises(BadWatchpointError) as caught:
            parse_watch(f"{condition}max > 6*st and min < 3")
        said.add((caught.value.what, caught.value.where.strip()))
    assert len(said) == 1
