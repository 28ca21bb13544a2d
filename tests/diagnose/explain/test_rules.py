"""The table of guidance: every condition and error has a row, and a cause is one function in one row."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator

import pytest

from tests.diagnose.explain.training import MATMUL, RELU, training, values
from tui_debugger.diagnose.explain.evidence import Evidence
from tui_debugger.diagnose.explain.guidance import Advice, Cause, Standing
from tui_debugger.diagnose.explain.rules import (
    CONDITION_RULES,
    ERROR_RULES,
    OPERATOR_RULES,
    ConditionRule,
    any_tensor,
    condition_rule,
)
from tui_debugger.model import ErrorBits, Side, TensorKey, Verdict, WatchResult
from tui_debugger.watch.condition_table import CONDITIONS


def evidence(node: str, condition: str = "tensor_too_large") -> Evidence:
    return Evidence(training({0: values()}), key(node), result=WatchResult(1, condition, Verdict.FINDING))


def key(node: str) -> TensorKey:
    return TensorKey(0, "kernel_graph_0", node, Side.OUTPUT, 0, 0)


def cause(title: str, standing: Standing) -> Cause:
    return Cause(title, "because", standing)


def test_every_condition_has_a_row_for_whatever_tensor_it_hits_and_that_is_its_last_one() -> None:
    for condition in CONDITIONS:
        rows = [rule for rule in CONDITION_RULES if condition in rule.conditions]
        assert [rule for rule in rows if rule.fits is any_tensor] == rows[-1:], condition


def test_a_special_kind_of_tensor_has_a_row_of_its_own() -> None:
    rules = {node: condition_rule(evidence(node, "tensor_all_zero")) for node in (RELU, "w", MATMUL)}
    assert len(set(map(id, rules.values()))) == 3
    assert rules[MATMUL].fits is any_tensor


@pytest.mark.parametrize("bit", [bit for bit in ErrorBits if bit])
def test_everything_that_keeps_a_condition_from_being_judged_has_one_row(bit: ErrorBits) -> None:
    assert len([rule for rule in ERROR_RULES if rule.error & bit]) == 1


def test_a_type_of_operator_stands_in_one_row_only() -> None:
    types = Counter(name for rule in OPERATOR_RULES for name in rule.types.split())
    assert [name for name, rows in types.items() if rows > 1] == []


def test_a_cause_is_one_function_in_one_row() -> None:
    def sunspots(of: Evidence) -> Iterator[Cause]:
        yield Cause("sunspots", f"{of.key.node} {of.result.condition}", Standing.LIKELY)

    rule = condition_rule(evidence(MATMUL))
    more = dataclasses.replace(rule, causes=(*rule.causes, sunspots))
    titles = [each.title for each in more.weigh(evidence(MATMUL)) if each.standing is Standing.LIKELY]
    assert "sunspots" in titles
    assert set(titles) - {"sunspots"} <= {each.title for each in rule.weigh(evidence(MATMUL))}


def test_causes_are_said_once_and_likely_ones_first() -> None:
    one = [cause("a", Standing.RULED_OUT), cause("b", Standing.LIKELY)]
    two = [cause("b", Standing.LIKELY), cause("c", Standing.POSSIBLE)]
    rule = ConditionRule(("tensor_too_large",), any_tensor, (lambda *_: one, lambda *_: two), ())
    assert [each.title for each in rule.weigh(evidence(MATMUL))] == ["b", "c", "a"]


def test_where_no_function_has_anything_to_say_the_row_still_has() -> None:
    nothing = cause("nothing is known", Standing.UNKNOWN)
    rule = ConditionRule(("tensor_too_large",), any_tensor, (lambda *_: (),), (), otherwise=nothing)
    assert rule.weigh(evidence(MATMUL)) == (nothing,)


def test_advice_is_fixed_or_depends_on_what_is_likely() -> None:
    def of_first(_: Evidence, causes: object) -> Iterator[Advice]:
        yield Advice(f"because of {causes}")

    rule = ConditionRule(("tensor_too_large",), any_tensor, (), (Advice("look"), of_first))
    assert [each.text for each in rule.advise(evidence(MATMUL), ())] == ["look", "because of ()"]


def test_values_of_zero_that_are_too_large_do_not_fall_below_the_range_of_their_type() -> None:
    steps = {0: values()}
    steps[0][MATMUL] = steps[0][MATMUL] * 0
    zero = Evidence(training(steps), key(MATMUL), result=WatchResult(1, "tensor_too_large", Verdict.FINDING))
    titles = [each.title for each in condition_rule(zero).weigh(zero)]
    assert not [title for title in titles if "below the range" in title]
