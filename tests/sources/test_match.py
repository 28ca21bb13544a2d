"""The matcher on small graphs, rule by rule."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from tests.sources.matching import FLOAT, Files, graph, match_files, names, node
from tui_debugger.graph.build import build_table
from tui_debugger.graph.messages import ParsedGraph, ParsedParameter
from tui_debugger.graph.table import NodeTable
from tui_debugger.sources.mindspore.assign import SAMPLE, WHOLE, ContentNumbers
from tui_debugger.sources.mindspore.match import NOWHERE, FileGroup, GroupMatch

# --- rule by rule ------------------------------------------------------------------------------------------------


def two_muls(first: Any, second: Any, timestamps: tuple[int, int] = (0, 0)) -> tuple[NodeTable, GroupMatch]:
    """Graph: w0 -> Mul-op0 -> Mul-op1. Files: op0 carries ``first``, op1 carries ``second`` ((input, output))."""
    table = graph(node(0, "S/Mul-op0", "w0"), node(1, "S/Mul-op1", "0"), parameters=["w0"])
    files = Files()
    groups = [
        files.group("Mul", "S_Mul-op0", first[:1], first[1:], timestamps[0]),
        files.group("Mul", "S_Mul-op1", second[:1], second[1:], timestamps[1]),
        files.group("Parameter", "w0", [], [1], 99),
    ]
    return table, match_files(table, groups, files.load)


def test_right_names_are_kept() -> None:
    table, match = two_muls((1, 2), (2, 3))
    assert names(table, match)[:2] == ["S/Mul-op0", "S/Mul-op1"]
    assert not match.uncertain.any()


def test_exchanged_names_are_seen_through() -> None:
    table, match = two_muls((2, 3), (1, 2))
    assert names(table, match)[:2] == ["S/Mul-op1", "S/Mul-op0"]
    assert not match.uncertain.any()


def test_equal_bytes_everywhere_are_no_doubt_but_stay_open_for_another_step() -> None:
    table, match = two_muls((1, 1), (1, 1))
    assert names(table, match)[:2] == ["S/Mul-op0", "S/Mul-op1"]
    assert not match.uncertain.any()
    assert sorted(match.open) == [0, 1]


def test_timestamps_decide_what_bytes_do_not() -> None:
    table, match = two_muls((1, 1), (1, 1), timestamps=(20, 10))
    assert names(table, match)[:2] == ["S/Mul-op1", "S/Mul-op0"]
    assert not match.open


def test_bytes_outrank_timestamps() -> None:
    table, match = two_muls((1, 2), (2, 3), timestamps=(20, 10))
    assert names(table, match)[:2] == ["S/Mul-op0", "S/Mul-op1"]
    assert not match.uncertain.any()


def test_values_that_contradict_the_graph_are_uncertain() -> None:
    _, match = two_muls((1, 2), (7, 3))
    assert match.uncertain.tolist() == [False, True, False]


def test_what_stays_open_with_different_bytes_is_uncertain_and_keeps_its_name() -> None:
    table = graph(node(0, "S/Mul-op0", "w0"), node(1, "S/Mul-op1", "w0"), parameters=["w0"])
    files = Files()
    groups = [files.group("Mul", f"S_Mul-op{i}", [1], [i + 2]) for i in (0, 1)]
    groups.append(files.group("Parameter", "w0", [], [1]))
    match = match_files(table, groups, files.load)
    assert names(table, match)[:2] == ["S/Mul-op0", "S/Mul-op1"]
    assert match.uncertain.tolist() == [True, True, False]


def test_shifted_numbers_match_when_only_one_node_is_there() -> None:
    table = graph(node(0, "S/AddN-op5", "w0"), parameters=["w0"])
    files = Files()
    right = [files.group("AddN", "S_AddN-op0", [1], [2]), files.group("Parameter", "w0", [], [1])]
    assert names(table, match_files(table, right, files.load)) == ["S/AddN-op5", "w0"]
    wrong = [files.group("AddN", "S_AddN-op0", [8], [2]), files.group("Parameter", "w0", [], [1])]
    assert match_files(table, wrong, files.load).uncertain.tolist() == [True, False]


def test_reshape_is_compared_by_bytes() -> None:
    table = graph(
        node(0, "S/Mul-op0", "w0"),
        node(1, "S/Reshape-op0", "0"),
        node(2, "S/Reshape-op1", "w0"),
        parameters=["w0"],
    )
    files = Files()
    flat, square = np.arange(4, dtype=np.float32), np.ones((2, 2), np.float32)
    groups = [
        files.group("Mul", "S_Mul-op0", [square], [flat]),
        files.group("Reshape", "S_Reshape-op0", [square], [square]),
        files.group("Reshape", "S_Reshape-op1", [flat.reshape(2, 2)], [flat.reshape(4, 1)]),
        files.group("Parameter", "w0", [], [square.reshape(4)]),
    ]
    match = match_files(table, groups, files.load)
    assert names(table, match)[1:3] == ["S/Reshape-op1", "S/Reshape-op0"]
    assert not match.uncertain.any()


def test_tuples_are_followed_item_by_item() -> None:
    table = graph(
        node(0, "S/Split-op0", "w0", outputs=2),
        node(1, "S/TupleGetItem-op0", "0", "cst1"),
        node(2, "S/TupleGetItem-op1", "0", "cst2"),
        node(3, "S/MakeTuple-op0", "1", "2"),
        node(4, "S/TupleGetItem-op2", "3", "cst2"),
        node(5, "S/Abs-op0", "1"),
        node(6, "S/Abs-op1", "4"),
        node(7, "S/AddN-op0", "3"),
        node(8, "S/AddN-op1", "w0"),
        parameters=["w0"],
        constants=["0", "1"],
    )
    files = Files()
    groups = [
        files.group("Split", "S_Split-op0", [1], [2, 3]),
        files.group("Abs", "S_Abs-op0", [3], [3]),
        files.group("Abs", "S_Abs-op1", [2], [2]),
        files.group("AddN", "S_AddN-op0", [1], [9]),
        files.group("AddN", "S_AddN-op1", [2, 3], [5]),
        files.group("Parameter", "w0", [], [1]),
    ]
    match = match_files(table, groups, files.load)
    assert names(table, match)[1:5] == ["S/Abs-op1", "S/Abs-op0", "S/AddN-op1", "S/AddN-op0"]
    assert not match.uncertain.any()


def updating_graph() -> NodeTable:
    """Two weights, each read by a Mul behind a Load, then updated in place by an SGD with a gradient of its own."""
    return graph(
        node(0, "S/Load-op0", "w0", "cst1"),
        node(1, "S/Load-op1", "w1", "cst1"),
        node(2, "S/Mul-op0", "0"),
        node(3, "S/Mul-op1", "1"),
        node(4, "S/Grad-op0", "0"),
        node(5, "S/Grad-op1", "1"),
        node(6, "S/UpdateState-op0", "cst1", "0", "1"),
        node(7, "O/SGD-op0", "w0", "4", "6"),
        node(8, "O/UpdateState-op1", "6", "7"),
        node(9, "O/SGD-op1", "w1", "5", "8"),
        parameters=["w0", "w1"],
        constants=[""],
    )


def test_parameters_are_seen_before_and_after_their_update() -> None:
    # Old weights 1, 2; new 11, 12; gradients both 0. Files of every pair carry exchanged numbers.
    files = Files()
    groups = [
        files.group("Mul", "S_Mul-op1", [1], [5]),
        files.group("Mul", "S_Mul-op0", [2], [6]),
        files.group("Grad", "S_Grad-op0", [1], [0]),
        files.group("Grad", "S_Grad-op1", [2], [0]),
        files.group("SGD", "O_SGD-op1", [11, 0], [11]),
        files.group("SGD", "O_SGD-op0", [12, 0], [12]),
        files.group("Parameter", "w0", [], [11]),
        files.group("Parameter", "w1", [], [12]),
    ]
    table = updating_graph()
    match = match_files(table, groups, files.load)
    # The optimizer's inputs are the new weights, which the parameter files hold: certain.
    assert names(table, match)[4:6] == ["O/SGD-op0", "O/SGD-op1"]
    assert not match.uncertain[4:].any()
    # What the forward pass read is the step before: consistent either way round, so in doubt.
    assert match.uncertain[:4].all()
    pairs = dict(zip([group.op_name for group in groups], names(table, match), strict=True))
    assert (pairs["S_Mul-op1"] == "S/Mul-op0") == (pairs["S_Grad-op0"] == "S/Grad-op0")  # but consistent


def test_in_place_inputs_of_operators_are_no_contradiction() -> None:
    table = graph(
        node(0, "S/Mul-op0", "w0"),
        node(1, "S/UpdateState-op0", "cst1", "0"),
        node(2, "S/InplaceAdd-op1", "0", "1"),
        parameters=["w0"],
        constants=[""],
    )
    files = Files()
    groups = [
        files.group("Mul", "S_Mul-op0", [1], [2]),
        files.group("InplaceAdd", "S_InplaceAdd-op0", [5], [5]),
        files.group("Parameter", "w0", [], [1]),
    ]
    match = match_files(table, groups, files.load)
    assert names(table, match) == ["S/Mul-op0", "S/InplaceAdd-op1", "w0"]
    assert not match.uncertain.any()


def test_same_leaf_in_two_scopes_is_told_apart_by_data_flow() -> None:
    # 2.0 spells only the last component: both nodes would write files of one name.
    table = graph(node(0, "A/Mul-op1", "w0"), node(1, "B/Mul-op1", "w1"), parameters=["w0", "w1"])
    files = Files()
    groups = [
        files.group("Mul", "Mul-op1", [2], [3]),
        files.group("Parameter", "w0", [], [1]),
        files.group("Parameter", "w1", [], [2]),
    ]
    match = match_files(table, groups, files.load)
    assert names(table, match)[0] == "B/Mul-op1"
    assert not match.uncertain.any()


def test_scopes_that_flatten_alike_are_told_apart_by_data_flow() -> None:
    table = graph(node(0, "A/b_c/Mul-op0", "w0"), node(1, "A_b/c/Mul-op1", "w1"), parameters=["w0", "w1"])
    files = Files()
    groups = [
        files.group("Mul", "A_b_c_Mul-op0", [2], [3]),
        files.group("Mul", "A_b_c_Mul-op1", [1], [3]),
        files.group("Parameter", "w0", [], [1]),
        files.group("Parameter", "w1", [], [2]),
    ]
    assert names(table, match_files(table, groups, files.load))[:2] == ["A_b/c/Mul-op1", "A/b_c/Mul-op0"]


def test_parameters_are_found_with_dots_and_without() -> None:
    table = graph(node(0, "S/Mul-op0", "fc1.weight"), parameters=["fc1.weight", "accum.fc1.bias"])
    groups = [FileGroup("Parameter", name, ((1, 0, 0),)) for name in ("fc1.weight", "fc1_weight", "accum_fc1_bias")]
    match = match_files(table, groups[:1], lambda _: pytest.fail("names decide"))
    assert names(table, match) == ["fc1.weight"]
    match = match_files(table, groups[1:], lambda _: pytest.fail("names decide"))
    assert names(table, match) == ["fc1.weight", "accum.fc1.bias"]


def test_only_graphs_of_the_root_are_candidates() -> None:
    table = build_table(
        [
            ParsedGraph(f"kernel_graph_{i}", str(i), (node(0, "S/Mul-op0", "w"),), (ParsedParameter("w", FLOAT),), ())
            for i in (0, 1)
        ]
    )
    groups = [FileGroup("Mul", "Mul-op0", ((1, 0, 0),))]
    for root in (0, 1):
        row = int(match_files(table, groups, lambda _: pytest.fail("names decide"), root=root).node[0])
        assert table.graph_of(row).root_id == root


@pytest.mark.parametrize(
    "name", ["Mul-op[0]", "S_\x1b[31mMul-op0", "S_M\udcffl-op0", "x" * 300, "", "-op0", "--", "__"]
)
def test_names_that_no_node_has_are_nowhere(name: str) -> None:
    table = graph(node(0, "S/Add-op0", "w0"), parameters=["w0"])
    match = match_files(table, [FileGroup("Mul", name, ((1, 0, 0),))], lambda _: pytest.fail("nothing to read"))
    assert match.node.tolist() == [NOWHERE]
    assert not match.uncertain.any()


def test_odd_names_match_when_the_graph_has_them() -> None:
    odd = "S[0]/M\udcffl"
    table = graph(node(0, f"{odd}/Mul-op0", "w0"), node(1, f"{odd}/Mul-op1", "0"), parameters=["w0"])
    files = Files()
    flat = odd.replace("/", "_")
    groups = [
        files.group("Mul", f"{flat}_Mul-op0", [2], [3]),
        files.group("Mul", f"{flat}_Mul-op1", [1], [2]),
        files.group("Parameter", "w0", [], [1]),
    ]
    assert names(table, match_files(table, groups, files.load))[:2] == [f"{odd}/Mul-op1", f"{odd}/Mul-op0"]


def test_no_graph_and_no_files() -> None:
    empty = build_table([])
    assert (
        match_files(empty, [FileGroup("Mul", "Mul-op0", ((1, 0, 0),))], lambda _: pytest.fail("nothing to read")).node[
            0
        ]
        == NOWHERE
    )
    assert len(match_files(graph(node(0, "S/Mul-op0")), [], lambda _: pytest.fail("nothing to read")).node) == 0


def test_more_groups_than_nodes_leave_the_odd_one_nowhere() -> None:
    table = graph(node(0, "S/Mul-op0", "w0"), node(1, "S/Mul-op1", "0"), parameters=["w0"])
    files = Files()
    groups = [
        files.group("Mul", "S_Mul-op0", [7], [7]),
        files.group("Mul", "S_Mul-op1", [2], [3]),
        files.group("Mul", "S_Mul-op2", [1], [2]),
        files.group("Parameter", "w0", [], [1]),
    ]
    assert names(table, match_files(table, groups, files.load)) == [None, "S/Mul-op1", "S/Mul-op0", "w0"]


def test_groups_too_many_stay_nowhere_while_others_are_still_being_decided() -> None:
    table = graph(
        *(node(0, "S/Mul-op0", "w0"), node(1, "S/Mul-op1", "0"), node(2, "T/Add-op0", "w0")), parameters=["w0"]
    )
    files = Files()
    groups = [
        files.group("Mul", "S_Mul-op0", [1], [1], 20),  # only time tells, which is asked last
        files.group("Mul", "S_Mul-op1", [1], [1], 10),
        files.group("Parameter", "w0", [], [1], 99),
        files.group("Add", "T_Add-op0", [1], [5], 30),
        *(files.group("Add", f"T_Add-op{number}", [7], [7], 31) for number in (8, 9)),
    ]
    match = match_files(table, groups, files.load)
    assert names(table, match) == ["S/Mul-op1", "S/Mul-op0", "w0", "T/Add-op0", None, None]


def test_of_two_spellings_of_one_node_the_later_one_has_it() -> None:
    table = graph(node(0, "S/Mul-op0", "w0"), parameters=["w0"])
    files = Files()
    spellings = ("Mul-op0", "S_Mul-op0", "S--Mul-op0")
    for order in (spellings, spellings[::-1]):
        groups = [files.group("Mul", name, [1], [2]) for name in order]
        assert names(table, match_files(table, groups, files.load)) == [None, None, "S/Mul-op0"]


def test_a_later_step_decides_only_what_was_open() -> None:
    table = graph(*(node(i, f"S/Mul-op{i}", f"w{i}") for i in range(4)), parameters=[f"w{i}" for i in range(4)])

    def step(weights: Sequence[int]) -> tuple[list[FileGroup], Files]:
        files = Files()
        groups = [files.group("Mul", f"S_Mul-op{3 - i}", [w], [w]) for i, w in enumerate(weights)]
        return groups + [files.group("Parameter", f"w{i}", [], [w]) for i, w in enumerate(weights)], files

    groups, files = step([1, 2, 0, 0])
    first = match_files(table, groups, files.load)
    assert sorted(first.open) == [2, 3]
    groups, files = step([5, 5, 6, 7])
    second = match_files(table, groups, files.load, earlier=first)
    assert names(table, second)[:4] == [f"S/Mul-op{i}" for i in range(4)]
    assert not second.open
    assert not second.uncertain.any()


def test_doubt_stays_until_a_step_removes_it() -> None:
    table = graph(node(0, "S/Mul-op0", "w0"), node(1, "S/Mul-op1", "w1"), parameters=["w0", "w1"])

    def step(*outputs: int, weights: tuple[int, int]) -> tuple[list[FileGroup], Files]:
        files = Files()
        groups = [files.group("Mul", f"S_Mul-op{i}", [w], [outputs[i]]) for i, w in enumerate(weights)]
        return groups + [files.group("Parameter", f"w{i}", [], [w]) for i, w in enumerate(weights)], files

    groups, files = step(3, 4, weights=(1, 1))
    first = match_files(table, groups, files.load)
    assert first.uncertain[:2].all()
    groups, files = step(3, 3, weights=(1, 1))
    assert match_files(table, groups, files.load, earlier=first).uncertain[:2].all()
    groups, files = step(3, 3, weights=(1, 2))
    assert not match_files(table, groups, files.load, earlier=first).uncertain.any()


def test_many_alike_in_one_scope() -> None:
    # 400 in a chain, numbers reversed, no timestamps: propagation must do it, search would never end.
    count = 400
    table = graph(*(node(i, f"S/Mul-op{i}", str(i - 1) if i else "w0") for i in range(count)), parameters=["w0"])
    files = Files()
    groups = [files.group("Mul", f"S_Mul-op{count - 1 - i}", [i], [i + 1]) for i in range(count)]
    groups.append(files.group("Parameter", "w0", [], [0]))
    match = match_files(table, groups, files.load)
    assert names(table, match)[:count] == [f"S/Mul-op{i}" for i in range(count)]


def test_many_that_nothing_tells_apart_are_doubted_soon() -> None:
    count = 400
    table = graph(*(node(i, f"S/Mul-op{i}", "w0") for i in range(count)), parameters=["w0"])
    files = Files()
    groups = [files.group("Mul", f"S_Mul-op{count - 1 - i}", [0], [i]) for i in range(count)]
    match = match_files(table, groups, files.load)
    assert match.uncertain.all()
    assert names(table, match) == [f"S/Mul-op{count - 1 - i}" for i in range(count)]


# --- reading -----------------------------------------------------------------------------------------------------


def test_big_tensors_are_sampled_and_read_whole_only_where_samples_leave_a_choice() -> None:
    table = graph(*(node(i, f"S/Mul-op{i}", f"w{i}") for i in range(3)), parameters=["w0", "w1", "w2"])
    big = [np.zeros(WHOLE, np.float32) for _ in range(3)]
    big[0][:] = 5
    big[1][SAMPLE // 4 + 1] = 1  # between two samples: only the whole tensor tells it from the next
    files = Files()
    groups = [files.group("Mul", f"S_Mul-op{(i + 1) % 3}", [big[i]], [np.zeros(1)]) for i in range(3)]
    groups += [files.group("Parameter", f"w{i}", [], [big[i]]) for i in range(3)]
    match = match_files(table, groups, files.load)
    assert names(table, match)[:3] == [f"S/Mul-op{i}" for i in range(3)]
    assert not match.open
    assert files.read.count(0) == 1  # the first one's sample was unlike the others'


def test_unreadable_files_fit_everything() -> None:
    values = ContentNumbers(Files().load)
    with pytest.raises(IndexError):
        values.of(0)
    files = Files()
    index = files.add(None)
    assert ContentNumbers(files.load).of(index) < 0


def test_layout_in_memory_does_not_matter() -> None:
    files = Files()
    array = np.arange(12, dtype=np.float32).reshape(3, 4)
    same = [
        files.add(array),
        files.add(np.asfortranarray(array)),
        files.add(array.reshape(2, 6)),
        files.add(array[:, ::1]),
    ]
    values = ContentNumbers(files.load)
    assert len({values.of(index) for index in same}) == 1
    assert values.of(files.add(array.T)) != values.of(same[0])
    assert values.of(files.add(np.zeros((0, 3), np.float32))) >= 0
    assert values.of(files.add(np.float32(3).reshape(()))) >= 0


def test_too_much_to_read_whole_is_doubted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tui_debugger.sources.mindspore.match.READ_AGAIN", WHOLE)
    table = graph(node(0, "S/Mul-op0", "w0"), node(1, "S/Mul-op1", "w1"), parameters=["w0", "w1"])
    files = Files()
    groups = [files.group("Mul", f"S_Mul-op{i}", [np.zeros(WHOLE, np.float32)], [1]) for i in range(2)]
    assert match_files(table, groups, files.load).uncertain.tolist() == [True, True]
    assert files.read.count(0) == 1


def test_bfloat16_is_compared_by_bytes() -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    files = Files()
    values = ContentNumbers(files.load)
    indices = [files.add(np.array(each, ml_dtypes.bfloat16)) for each in ([1, 2], [1, 2], [1, 3])]
    first, same, other = (values.of(index) for index in indices)
    assert first == same != other


def test_values_that_no_assignment_fits_are_all_uncertain() -> None:
    # Every single pair of files fits some node, all together fit none: Mul and Add read the same two tensors.
    table = graph(
        node(0, "S/Mul-op0", "w0", "w1"),
        node(1, "S/Add-op0", "w0", "w1"),
        node(2, "S/Mul-op1", "w2", "w3"),
        node(3, "S/Add-op1", "w2", "w3"),
        parameters=["w0", "w1", "w2", "w3"],
    )
    files = Files()
    groups = [files.group("Mul", f"S_Mul-op{i}", [i, i], [8]) for i in (0, 1)]
    groups += [files.group("Add", f"S_Add-op{i}", [i, 1 - i], [9]) for i in (0, 1)]
    match = match_files(table, groups, files.load)
    assert match.uncertain.all()
    assert names(table, match) == ["S/Mul-op0", "S/Mul-op1", "S/Add-op0", "S/Add-op1"]
