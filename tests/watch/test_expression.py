"""Conditions of one's own: what can be written, what it means, and what is refused with its place."""

from __future__ import annotations

import contextlib
import time

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.thorough import examples
from tests.watch.expressions import expressions
from tui_debugger.errors import BadWatchpointError
from tui_debugger.model import ErrorBits, TensorMeta, TensorStats, Verdict, Watchpoint, WatchResult
from tui_debugger.stats.fields import COLUMNS, QUANTITIES
from tui_debugger.stats.records import PreviousStats, Record, Records
from tui_debugger.watch.condition_table import validate
from tui_debugger.watch.evaluate import ColumnEvaluator, Facts, needs
from tui_debugger.watch.expression import DEEPEST, FUNCTIONS, LONGEST, Expression, filled_in, parse, pretty
from tui_debugger.watch.text import format_watch, parse_watch


class TestWriting:
    @examples(500)
    @given(expressions)
    def test_every_expression_comes_back_from_its_text(self, expression: Expression) -> None:
        assert parse(expression.text).tree == expression.tree

    @pytest.mark.parametrize(
        ("text", "written"),
        [
            ("max>6*std and zero_pct<50", "max > 6*std and zero_pct < 50"),
            ("  norm\t>\n10 * prev.norm", "norm > 10*prev.norm"),
            ("0 ≤ mean ≠ 1", "0 <= mean != 1"),
            ("(max - min) - 1 > 2 - (3 - 4)", "max - min - 1 > 2 - (3 - 4)"),
            ("not (max > 1 or min < 0) and nan == 0", "not (max > 1 or min < 0) and nan == 0"),
            ("((((max)))) > -(-1.50e1)", "max > --15"),
            ("(max + min) + 1 > (2*3)/4*(5/6)", "max + min + 1 > 2*3/4*(5/6)"),
            ("a > 1".replace("a", "abs(mean)"), "abs(mean) > 1"),
            ('category == "weight"', "category == 'weight'"),
        ],
    )
    def test_one_meaning_is_always_written_in_the_same_way(self, text: str, written: str) -> None:
        try:
            assert parse(text).text == written
        except BadWatchpointError:
            pytest.fail(f"{text} was refused")

    def test_quantities_have_the_names_of_the_columns_of_json_and_csv(self) -> None:
        assert {field.column for field in COLUMNS} < set(QUANTITIES)
        for name in QUANTITIES:
            assert parse(f"{name} > prev.{name}").text == f"{name} > prev.{name}"

    def test_a_watchpoint_of_it_is_text(self) -> None:
        text = "EX max > 6*std and name != 'a@b' @ category=activation"
        condition, params, selection = parse_watch(text)
        assert format_watch(Watchpoint(1, condition, params, selection)) == text

    def test_people_see_it_with_its_values(self) -> None:
        assert pretty("max > 6*std") == "max > 6·std"
        assert filled_in("max > 6*std", {"max": "12.3", "std": "0.5"}) == "12.3 > 6·0.5"


class TestRefused:
    @pytest.mark.parametrize(
        ("text", "what", "place"),
        [
            ("", "something is missing at the end", 0),
            ("max >", "something is missing at the end", 5),
            ("max > > 1", "a value is missing before '>'", 6),
            ("max = 1", "'=' is no part of an expression", 4),
            ("max > 1 && min < 0", "'&' is no part of an expression", 8),
            ("max > 6σ", "'σ' is no part of an expression", 7),
            ("maximum > 1", "no quantity is called 'maximum'", 0),
            ("prev.prev.max > 1", "no quantity is called 'prev.prev.max'", 0),
            ("prev.step > 1", "step is a fact", 0),
            ("max", "this is a value", 0),
            ("max > 1 and min", "this is a value", 12),
            ("not max", "this is a value", 4),
            ("(max > 1) + 1 > 2", "this is true or false", 0),
            ("(max > min) > mean", "this is true or false", 0),
            ("max > 1 min < 0", "'min' is one too many", 8),
            ("(max > 1", "a parenthesis is not closed", 8),
            ("max(min) > 1", "max takes two numbers or more", 0),
            ("sqrt(min, max) > 1", "sqrt takes one number", 0),
            ("exp(max) > 1", "no function is called 'exp'", 0),
            ("max > 'a'", "a text is compared with a number", 6),
            ("type > 'a'", "texts are equal or not", 7),
            ("category == weight", "no quantity is called 'weight'", 12),
            ("category == 'weihgt'", "no category is called 'weihgt'", 12),
            ("dtype == 'fp32'", "no element type is called 'fp32'", 9),
            ("'BF16' != dtype", "no element type is called 'BF16'", 10),
            ("name == type", "a fact is compared with a text in quotes", 8),
            ("max > 1e400", "the number is too large", 6),
            ("name == 'a", '"\'" is no part of an expression', 8),
            ("name == 'a\nb'", "the text holds a control character", 8),
            ("__import__('os').system('true') > 0", "no function is called '__import__'", 0),
            ("max.__class__ > 1", "no quantity is called 'max.__class__'", 0),
            ("max if 1 else min", "'if' is one too many", 4),
            ("lambda: 1", "':' is no part of an expression", 6),
            ("max > 1; min", "';' is no part of an expression", 7),
        ],
    )
    def test_an_error_says_what_where_and_what_to_do(self, text: str, what: str, place: int) -> None:
        with pytest.raises(BadWatchpointError) as raised:
            parse(text)
        error = raised.value
        assert error.what.startswith(what)
        line, caret, hint = error.hint.split("\n", 2)
        assert hint
        assert line == error.where
        at = caret.index("^")
        assert caret.strip() == "^"
        assert at == place
        assert line[at : at + 1] == text[place : place + 1]

    @pytest.mark.parametrize(
        ("text", "suggested"),
        [
            ("maxx > 1", "did you mean max"),
            ("prev.nrom > 1", "did you mean norm?"),
            ("zero_percentage > 1", "did you mean zero_pct"),
            ("Max > 1", "did you mean max"),
            ("catagory == 'weight'", "did you mean category?"),
            ("sqr(mean) > 1", "did you mean sqrt?"),
            ("category == 'Weight'", "did you mean weight"),
            ("dtype == 'bf16'", "write 'bfloat16'"),
            ("dtype == 'Float32'", "write 'float32'"),
            ("dtype == 'torch.float16'", "write 'float16'"),
            ("dtype == 'fp16'", "one of bool, int8"),
            ("exponent > 1", "quantities: count nan"),
        ],
    )
    def test_a_name_that_is_none_is_answered_with_names_that_are(self, text: str, suggested: str) -> None:
        with pytest.raises(BadWatchpointError) as raised:
            parse(text)
        hint = raised.value.hint.split("\n")[2:]
        assert hint[0].startswith(suggested)
        assert max(map(len, hint)) <= 70

    @pytest.mark.parametrize("name", ["float8_e4m3fn", "int4", "bfloat16", "bool", "<U5", "float4_e2m1fn_x2"])
    def test_every_element_type_of_a_dump_can_be_asked_for(self, name: str) -> None:
        assert parse(f"dtype == '{name}'").text == f"dtype == '{name}'"

    def test_the_place_is_shown_in_a_long_expression_too(self) -> None:
        text = " and ".join(["max > 1"] * 100) + " or foo > 1"
        with pytest.raises(BadWatchpointError) as raised:
            parse(text)
        line, caret, _ = raised.value.hint.split("\n", 2)
        assert line[caret.index("^") :].startswith("foo")
        assert len(line) < 80


MEGABYTE = 1 << 20


class TestHostile:
    @pytest.mark.parametrize(
        "text",
        [
            "max > 1" + " and max > 1" * (MEGABYTE // 12),
            "1" * MEGABYTE,
            "(" * 100_000 + "max" + ")" * 100_000 + " > 1",
            "x" * MEGABYTE,
            "'" * MEGABYTE,
        ],
    )
    def test_what_is_too_long_is_refused_at_once(self, text: str) -> None:
        began = time.process_time()
        with pytest.raises(BadWatchpointError, match=f"more than {LONGEST:,}") as raised:
            parse(text)
        assert len(str(raised.value)) < 1000
        assert time.process_time() - began < 1

    @pytest.mark.parametrize(
        "text",
        [
            "(" * 900 + "max" + ")" * 900 + " > 1",
            "-" * 1900 + "1 < 2",
            "not " * 400 + "max > 1",
            "abs(" * 300 + "max" + ")" * 300 + " > 1",
        ],
    )
    def test_what_is_too_deep_is_refused(self, text: str) -> None:
        with pytest.raises(BadWatchpointError, match=f"more than {DEEPEST} levels deep"):
            parse(text)

    def test_what_is_allowed_to_be_long_is_judged(self) -> None:
        for text in ("0" + "+1" * 490 + " > 1", " or ".join(["max>1"] * 150), "0<1" + "<2" * 490):
            watchpoint = Watchpoint(1, "expression", validate("EX", {"expression": text}))
            records = Records.of([record(stats(maximum=2.0))])
            ColumnEvaluator(records, np.arange(1)).results(watchpoint, first_step=False)

    @examples(300)
    @given(st.text(max_size=40) | st.text("max minprev.<>=()+-*/'\"019andornt,", max_size=60))
    @example("\x00")
    @example("max > \u0661")
    @example("max > 1\u2028")
    @example("\U0001f600 > 1")
    def test_any_text_is_read_or_refused(self, text: str) -> None:
        with contextlib.suppress(BadWatchpointError):
            found = parse(text)
            assert parse(found.text).tree == found.tree
            return
        with pytest.raises(BadWatchpointError) as raised:
            parse(text)
        assert all(each.isprintable() for each in raised.value.hint.replace("\n", ""))

    def test_nothing_is_run(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def run(*_: object) -> None:
            pytest.fail("run")

        monkeypatch.setattr("builtins.eval", run)
        monkeypatch.setattr("builtins.exec", run)
        assert parse("max > 6*std").text == "max > 6*std"
        assert set(FUNCTIONS) == {"abs", "min", "max", "sqrt", "log10"}


def stats(maximum: float | None = 2.0, nan: int = 0, zero: int = 1) -> TensorStats:
    squares = 0.0 if maximum is None else 4.0
    return TensorStats(4 + nan, nan, 0, 0, zero, 1, 3 - zero, -1.0, maximum, 0.5, 1.0, 0.25, squares)


def record(of: TensorStats | None, previous: PreviousStats | None = None) -> Record:
    return Record(TensorMeta("float32", (2, 2), 16), of, previous_stats=previous)


def judged(text: str, each: Record, *, first_step: bool = False, facts: Facts | None = None) -> WatchResult | None:
    watchpoint = Watchpoint(7, "expression", validate("EX", {"expression": text}))
    evaluator = ColumnEvaluator(Records.of([each]), np.arange(1), None if facts is None else lambda: facts)
    (result,) = evaluator.results(watchpoint, first_step)
    return result


class TestJudged:
    def test_a_hit_tells_what_each_name_stood_for(self) -> None:
        result = judged("max > 3*std and dtype == 'float32'", record(stats()))
        assert result is not None
        assert result.verdict is Verdict.FINDING
        (param,) = result.params
        assert param.quantities == (("max", 2.0), ("std", 0.5), ("dtype", "float32"))

    def test_nothing_is_said_where_it_does_not_hold(self) -> None:
        assert judged("max > 6*std", record(stats())) is None

    @pytest.mark.parametrize("text", ["max > 1", "max < 1", "not max > 1", "max > 1 and min < 0", "max != max"])
    def test_what_nobody_knows_cannot_be_judged(self, text: str) -> None:
        result = judged(text, record(stats(maximum=None)))
        assert result is not None
        assert (result.verdict, result.error) == (Verdict.CANNOT_JUDGE, ErrorBits.NO_VALUE)

    def test_what_decides_alone_needs_nothing_else(self) -> None:
        unknown = record(stats(maximum=None))
        assert judged("max > 1 and min > 0", unknown) is None
        hit = judged("max > 1 or min < 0", unknown)
        assert hit is not None
        assert hit.verdict is Verdict.FINDING

    @pytest.mark.parametrize("text", ["0/0 == 0", "sqrt(min) > 0", "log10(min) > 0", "1/0 - 1/0 > 0"])
    def test_a_calculation_without_a_result_is_not_known(self, text: str) -> None:
        result = judged(text, record(stats()))
        assert result is not None
        assert result.verdict is Verdict.CANNOT_JUDGE

    def test_division_by_zero_is_infinite(self) -> None:
        assert judged("1/0 > 1e300", record(stats())) is not None

    def test_nan_keeps_it_from_being_judged_unless_it_is_about_nan(self) -> None:
        bad = record(stats(nan=2))
        blocked = judged("max > 1", bad)
        assert blocked is not None
        assert (blocked.verdict, blocked.error) == (Verdict.BLOCKED, ErrorBits.NAN)
        hit = judged("nan >= 2 and max > 1", bad)
        assert hit is not None
        assert hit.verdict is Verdict.FINDING
        assert judged("nan > 2", bad) is None

    def test_the_first_step_has_nothing_to_compare_with(self) -> None:
        alone = record(stats(), PreviousStats("none"))
        first = judged("norm > 10*prev.norm", alone, first_step=True)
        later = judged("norm > 10*prev.norm", alone, first_step=False)
        assert first is not None
        assert later is not None
        assert (first.verdict, later.verdict) == (Verdict.NOT_COMPARABLE, Verdict.CANNOT_JUDGE)
        assert first.error == later.error == ErrorBits.NO_PREVIOUS
        assert judged("max > 1 or norm > 10*prev.norm", alone, first_step=True) is not None

    @pytest.mark.parametrize(
        ("state", "error"), [("unreadable", ErrorBits.UNREADABLE), ("no value", ErrorBits.NO_VALUE)]
    )
    def test_a_previous_step_that_is_there_and_tells_nothing_is_a_doubt(self, state: str, error: ErrorBits) -> None:
        result = judged("norm > prev.norm", record(stats(), PreviousStats(state)))
        assert result is not None
        assert (result.verdict, result.error) == (Verdict.CANNOT_JUDGE, error)

    def test_the_previous_step_is_taken_as_it_is(self) -> None:
        result = judged("max == 2*prev.max", record(stats(), PreviousStats("ok", stats(maximum=1.0, nan=1))))
        assert result is not None
        assert result.params[0].quantities == (("max", 2.0), ("prev.max", 1.0))

    def test_an_unreadable_tensor_cannot_be_judged(self) -> None:
        result = judged("max > 1 or size > 0", Record(None, None, error="is empty"))
        assert result is not None
        assert (result.verdict, result.error) == (Verdict.CANNOT_JUDGE, ErrorBits.UNREADABLE)

    def test_an_empty_tensor_hits_only_what_is_about_that(self) -> None:
        nothing = TensorStats(0, 0, 0, 0, 0, 0, 0, None, None, None, None, None, 0.0)
        empty = Record(TensorMeta("float32", (0, 3), 0), nothing)
        assert judged("max > 1", empty) is None
        assert judged("count == 0 and size == 0", empty) is not None

    @pytest.mark.parametrize(
        ("text", "hits"),
        [
            ("step == 3 and rank == 1", True),
            ("step > 3", False),
            ("name == 'net/MatMul-op1'", True),
            ("name == 'net/matmul-op1'", False),
            ("type == 'matmul'", True),
            ("category == 'weight'", True),
            ("category == 'trainable'", True),
            ("category == 'parameter' and category != 'gradient'", True),
            ("category == 'constant'", False),
            ("ndim == 2 and size == 4", True),
            ("dtype != 'float16'", True),
        ],
    )
    def test_facts(self, text: str, hits: bool) -> None:
        facts = Facts(np.array([3]), 1, lambda: ["net/MatMul-op1"], lambda: ["MatMul"], lambda: np.array([1]))
        assert (judged(text, record(stats()), facts=facts) is not None) == hits

    @pytest.mark.parametrize("text", ["step == 3", "rank != 1", "name == 'a'", "type != 'a'", "category == 'weight'"])
    def test_facts_that_nobody_knows(self, text: str) -> None:
        result = judged(text, record(stats()))
        assert result is not None
        assert result.verdict is Verdict.CANNOT_JUDGE

    def test_only_what_it_names_is_asked_for(self) -> None:
        def asked(text: str) -> tuple[bool, bool]:
            need = needs(Watchpoint(1, "expression", (("expression", text),)))
            return need.previous_stats, need.previous

        assert asked("max > 1") == (False, False)
        assert asked("max > prev.max") == (True, False)
