"""The watchpoint form: made from the condition table, and it teaches the text form."""

from __future__ import annotations

import shlex
from dataclasses import replace
from typing import Any

import pytest

from tests.thorough import share
from tests.tui.screens_host import HOSTILE, Opened, opened
from tests.tui.sizes import every_size
from tui_debugger.errors import BadQueryError, BadWatchpointError
from tui_debugger.model import NodeKind, NodeSelection, NodeSelector, Watchpoint
from tui_debugger.tui.dialogs.modal import InputLine
from tui_debugger.tui.dialogs.watchpoint_form import (
    WatchpointForm,
    default_text,
    hidden_params,
    make_draft,
    option_of,
    visible_params,
)
from tui_debugger.watch.condition_table import CONDITIONS
from tui_debugger.watch.text import parse_watch, target_selection

SUGGESTION = NodeSelection((NodeSelector(NodeKind.NODE, "Default/[red]Div[/]-op385"),))


def count(selection: NodeSelection) -> int:
    return 26 * len(selection.include)


def form(initial: Watchpoint | None = None, **options: Any) -> WatchpointForm:
    return WatchpointForm(initial, options.get("suggestion", SUGGESTION), options.get("count", count))


async def clear(view: Opened) -> None:
    await view.press("end", "ctrl+u")


async def test_fields_can_be_seen() -> None:
    async with opened(form()) as view:
        fields = view.app.screen.query(InputLine)
        assert {field.styles.background for field in fields}.isdisjoint({view.app.screen.styles.background})


async def test_to_and_enter_watches_for_overflow() -> None:
    async with opened(form()) as view:
        await view.type("to")
        assert "TO  Tensor overflow: Contains NaN or Inf.  It has no parameters." in view.text
        assert "--watch TO" in view.text
        await view.press("enter")
        assert view.result == Watchpoint(0, "tensor_overflow", (), target_selection(CONDITIONS["tensor_overflow"]))


async def test_parameters_start_with_their_defaults_and_are_checked_while_typed() -> None:
    async with opened(form()) as view:
        await view.type("tz")
        await view.press("tab")
        assert "zero_percentage_ge (default 100): Hits when at least this share" in view.text
        await clear(view)
        await view.type("101")
        assert "zero_percentage_ge must be 0 to 100, not 101.0" in view.text
        assert "--watch" not in view.text
        await view.press("enter")
        assert view.open
        await view.press("backspace", "backspace", "backspace")
        await view.type("50")
        assert "--watch 'TZ zero_percentage_ge=50'" in view.text
        await view.press("enter")
        assert view.result.params == (("zero_percentage_ge", 50.0),)


async def test_a_condition_without_defaults_asks_for_a_value() -> None:
    async with opened(form()) as view:
        await view.type("tl")
        assert "needs at least one value" not in view.text, "nothing was typed yet that could be wrong"
        await view.press("enter")
        assert view.open
        assert "tensor_too_large needs at least one value to compare with" in view.text
        await view.press("down")
        await view.type("1e3")
        assert "--watch 'TL max_gt=1000'" in view.text
        await view.press("enter")
        assert view.result.params == (("max_gt", 1000.0),)


async def test_several_values_and_both_ends_of_a_range() -> None:
    async with opened(form()) as view:
        await view.type("ar")
        await view.press("tab")
        await view.type("1")
        await view.press("down")
        await view.type("0")
        await view.press("down")
        await view.type("10")
        assert "the range starts above its end" in view.text
        await view.press("up")
        await clear(view)
        assert "a range percentage needs both ends of the range" in view.text
        await view.type("2")
        await view.press("enter")
        assert dict(view.result.params) == {
            "range_start_inclusive": 1.0,
            "range_end_inclusive": 2.0,
            "range_percentage_lt": 10.0,
        }


@pytest.mark.turns("size")
@every_size
async def test_no_mistake_is_told_before_a_value_was_typed(size: tuple[int, int]) -> None:
    for condition in share(list(CONDITIONS.values()), 2):
        async with opened(form(), size) as view:
            await view.type(condition.abbr)
            message = view.app.screen.query_one("#message")
            assert not message.display, condition.abbr
            await view.press("tab", "down", "up")
            assert not message.display, condition.abbr


async def test_a_mistake_is_forgotten_with_the_condition_it_was_made_in() -> None:
    async with opened(form()) as view:
        await view.type("tl")
        await view.press("enter")
        await view.type("x")
        assert "abs_mean_gt must be 0 or more" in view.text
        await view.press("shift+tab")
        await clear(view)
        await view.type("ts")
        assert "needs at least one value" not in view.text
        assert "must be" not in view.text


class TestConditionList:
    async def test_arrow_and_page_keys_choose(self) -> None:
        async with opened(form()) as view:
            await view.press("pageup", "pageup", "down")
            assert "OO  Operator overflow" in view.text
            await view.press("pagedown", "pagedown", "up")
            assert "GL  Gradient too large" in view.text

    async def test_typing_filters_by_abbreviation_name_target_and_summary(self) -> None:
        for text, chosen in [("wcl", "WCL"), ("gradient van", "GV"), ("did not", "WNC"), ("AR", "AR")]:
            async with opened(form()) as view:
                await view.type(text)
                assert f" {chosen}  {CONDITIONS[condition_of(chosen)].title}:" in view.text, text

    async def test_nothing_matches(self) -> None:
        async with opened(form()) as view:
            await view.type("zzz")
            assert "no condition matches" in view.text
            await view.press("enter")
            assert view.open

    async def test_every_condition_can_be_made_with_its_defaults_or_says_what_is_missing(self) -> None:
        for condition in share(list(CONDITIONS.values()), 2, 1):
            async with opened(form()) as view:
                await view.type(condition.abbr)
                for spec in visible_params(condition):
                    assert spec.label in view.text
                    assert spec.range_text in view.text or spec.kind == "expression"  # it needs the place
                await view.press("enter")
                if any(spec.default is not None for spec in condition.params if spec.visible) or not condition.params:
                    assert view.result.condition == condition.id
                else:
                    assert view.open
                    missing = "expression is missing" if condition.id == "expression" else "needs at least one value"
                    assert missing in view.text


def condition_of(abbreviation: str) -> str:
    return next(condition.id for condition in CONDITIONS.values() if condition.abbr == abbreviation)


class TestNodes:
    async def test_follow_the_condition_until_somebody_writes_something(self) -> None:
        async with opened(form()) as view:
            await view.type("wcl")
            assert "category=weight" in view.text
            await clear(view)
            await view.type("gv")
            assert "category=gradient" in view.text
            await view.press("tab", "tab", "tab", "tab", "tab")
            await clear(view)
            await view.type("type=Div")
            await view.press("shift+tab", "shift+tab", "shift+tab", "shift+tab", "shift+tab")
            await clear(view)
            await view.type("to")
            assert "type=Div" in view.text

    async def test_f2_offers_the_suggestion_then_every_category(self) -> None:
        async with opened(form()) as view:
            await view.type("to")
            await view.press("f2")
            assert "node=Default/[red]Div[/]-op385" in view.text
            assert view.open
            for word in ("weight", "activation", "gradient", "tensor"):
                await view.press("f2")
                assert f"category={word}" in view.text
            await view.press("f2", "enter")
            assert view.result.selection == SUGGESTION

    async def test_f2_without_a_suggestion_offers_the_categories(self) -> None:
        async with opened(form(suggestion=None)) as view:
            await view.type("to")
            await view.press("f2", "f2", "f2", "f2", "enter")
            assert view.result.selection == target_selection(CONDITIONS["tensor_overflow"])

    async def test_are_counted_while_one_types(self) -> None:
        async with opened(form()) as view:
            assert "26 nodes" in view.text
            await view.press("tab")
            await clear(view)
            await view.type("type=ReLU, type=Tanh")
            await view.pilot.pause(0.3)
            assert "52 nodes" in view.text
            await clear(view)
            await view.pilot.pause(0.3)
            assert "! no node is covered" in view.text

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("category=wieght", "no category is called 'wieght'"),
            ("re=(", "not a regular expression"),
            ("a,,b", "a part of the selection is empty"),
        ],
    )
    async def test_mistakes_are_said_in_the_words_of_the_command_line(self, text: str, message: str) -> None:
        with pytest.raises(BadWatchpointError, match=message):
            parse_watch(f"TO @ {text}")
        async with opened(form()) as view:
            await view.press("tab")
            await clear(view)
            await view.type(text)
            assert message in view.text
            await view.press("enter")
            assert view.open

    async def test_a_count_that_fails_is_said(self) -> None:
        def broken(_: NodeSelection) -> int:
            raise BadQueryError("too slow \x1b[2J", where="[b]")

        async with opened(form(count=broken)) as view:
            await view.press("enter")
            assert view.open
            assert "too slow \\x1b[2J" in view.text
            view.check_clean()


class TestEditing:
    EXISTING = Watchpoint(
        3,
        "weight_change_too_large",
        (("abs_mean_update_ratio_gt", 1.0), ("epsilon", 1e-6)),
        NodeSelection((NodeSelector(NodeKind.TYPE, "Parameter"),), (NodeSelector(NodeKind.REGEX, "bias$"),)),
        name="mine",
    )

    async def test_starts_with_what_there_is_and_keeps_hidden_parameters(self) -> None:
        async with opened(form(self.EXISTING)) as view:
            assert "Watchpoint 3" in view.text
            assert "type=Parameter, -bias$" in view.text
            await view.press("enter")
            assert view.result == replace(self.EXISTING, id=0)

    async def test_the_first_parameter_has_the_focus(self) -> None:
        async with opened(form(self.EXISTING)) as view:
            await clear(view)
            await view.type("2")
            await view.press("enter")
            assert dict(view.result.params)["abs_mean_update_ratio_gt"] == 2.0

    async def test_a_parameter_that_is_off_stays_off(self) -> None:
        existing = Watchpoint(
            1, "tensor_too_large", (("max_gt", 5.0),), target_selection(CONDITIONS["tensor_too_large"])
        )
        async with opened(form(existing)) as view:
            await view.press("enter")
            assert view.result.params == (("max_gt", 5.0),)

    async def test_name(self) -> None:
        async with opened(form(self.EXISTING)) as view:
            await view.press("down", "down", "down", "down")
            await clear(view)
            await view.type("[b]new[/b]")
            await view.press("enter")
            assert view.result.name == "[b]new[/b]"


async def test_esc_returns_nothing_from_anywhere() -> None:
    for keys in ((), ("tab",), ("tab", "tab"), ("x",)):
        async with opened(form()) as view:
            await view.press(*keys, "escape")
            assert view.result is None


@pytest.mark.turns("size")
@pytest.mark.parametrize("size", [(80, 24), (40, 12)])
@pytest.mark.parametrize("name", HOSTILE, ids=range(len(HOSTILE)))
async def test_hostile_nodes_and_names(name: str, size: tuple[int, int]) -> None:
    selection = NodeSelection((NodeSelector(NodeKind.NODE, name),))
    existing = Watchpoint(1, "activation_range", (), selection, name=name)
    async with opened(form(existing), size) as view:
        view.check_clean()


async def test_everything_fits_on_80x24() -> None:
    existing = Watchpoint(
        1,
        "activation_range",
        (("range_start_inclusive", 0.0), ("range_end_inclusive", 1.0), ("range_percentage_lt", 10.0)),
        target_selection(CONDITIONS["activation_range"]),
    )
    async with opened(form(existing)) as view:
        for word in ("condition", "range from", "max − min >", "nodes", "26 nodes", "name", "--watch", "Enter save"):
            assert word in view.text


class TestDraft:
    def test_the_shown_option_makes_the_same_watchpoint_on_the_command_line(self) -> None:
        draft = make_draft(
            CONDITIONS["tensor_too_large"], {"max_gt": "1e3"}, "type=MatMul, -re=it's, node=a[0]", " n ", {}
        )
        words = shlex.split(option_of(draft))
        assert words[0] == "--watch"
        assert parse_watch(words[1]) == (draft.condition, draft.params, draft.selection)
        assert draft.name == "n"

    def test_hidden_parameters_of_another_condition_are_dropped(self) -> None:
        draft = make_draft(CONDITIONS["tensor_overflow"], {}, "category=tensor", "", {"epsilon": 1.0})
        assert draft.params == ()

    def test_hidden_parameters(self) -> None:
        assert hidden_params(TestEditing.EXISTING) == {"epsilon": 1e-6}
        assert hidden_params(None) == {}
        assert hidden_params(Watchpoint(1, "unknown")) == {}

    def test_defaults_as_text(self) -> None:
        assert default_text(CONDITIONS["weight_not_changed"].param("rtol")) == "1e-05"
        assert default_text(CONDITIONS["tensor_too_large"].param("max_gt")) == ""


@pytest.mark.turns("size")
@every_size
async def test_a_condition_of_ones_own_is_checked_while_typed(size: tuple[int, int]) -> None:
    async with opened(form(), size=size) as view:
        await view.type("ex")
        assert "the expression is missing" not in view.text  # nothing was typed yet
        await view.press("enter")
        assert view.open
        assert "the expression is missing" in view.text
        await view.type("max > 6*st")  # Enter led to the field
        assert "no quantity is called 'st' (character 9)" in view.text
        assert "--watch" not in view.text
        await view.press("enter")
        assert view.open
        await view.type("d and name != 'a@b'")
        assert "--watch" in view.text
        assert "holds              max > 6*std and name != 'a@b'" in view.text
        await view.press("enter")
        assert view.result.params == (("expression", "max > 6*std and name != 'a@b'"),)
