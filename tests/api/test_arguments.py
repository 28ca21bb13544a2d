"""What callers may pass, and which error answers what they may not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tui_debugger import DumpAnalyzer, TensorOverflowCondition, TensorTooLargeCondition, Watchpoint
from tui_debugger.errors import (
    DebuggerParamTypeError,
    DebuggerParamValueError,
    NotADumpError,
    TdbgError,
    VersionNotMatchError,
)

Call = Callable[[DumpAnalyzer], Any]

WRONG_TYPES: dict[str, Call] = {
    "query_string": lambda run: run.select_nodes(5),
    "use_regex": lambda run: run.select_nodes("a", use_regex=1),
    "case_sensitive": lambda run: run.select_tensors("a", case_sensitive="no"),
    "ranks": lambda run: run.select_nodes("a", ranks="0"),
    "ranks in a list": lambda run: run.get_iterations(ranks=[0.0]),
    "ranks in a tuple": lambda run: run.get_iterations(ranks=(0,)),
    "iterations": lambda run: run.select_tensors("a", iterations=["0"]),
    "slots": lambda run: run.select_tensors("a", slots=0),
    "slots in a list": lambda run: run.select_tensors("a", slots=["0"]),
    "slots of a node": lambda run: run.select_nodes("Log")[0].get_output_tensors(slots=(0,)),
    "iterations of a node": lambda run: run.select_nodes("Log")[0].get_input_tensors(iterations="0"),
    "node": lambda run: run.get_input_nodes("Log"),
    "node of output": lambda run: run.get_output_nodes(None),
    "tensor": lambda run: run.list_affected_nodes(run.select_nodes("Log")[0]),
    "watchpoints": lambda run: run.check_watchpoints([TensorOverflowCondition()]),
    "watchpoints: one alone": lambda run: run.check_watchpoints(Watchpoint([], TensorOverflowCondition())),
    "watchpoints: none": lambda run: run.check_watchpoints(None),
    "tensors": lambda run: Watchpoint(tuple(run.select_tensors("Log")), TensorOverflowCondition()),
    "tensors in a list": lambda run: Watchpoint(run.select_nodes("Log"), TensorOverflowCondition()),
    "condition": lambda run: Watchpoint(run.select_tensors("Log"), "overflow"),
    "iterations in a range": lambda run: run.select_tensors("a", iterations=range(2)),
    "statistics": lambda run: run.summary_statistics(5),
}
WRONG_VALUES: dict[str, Call] = {
    "select_by": lambda run: run.select_nodes("a", select_by="op_type"),
    "select_by a list": lambda run: run.select_nodes("a", select_by=["node_name"]),
    "ranks": lambda run: run.select_nodes("a", ranks=1),
    "ranks of iterations": lambda run: run.get_iterations([0, 7]),
    "iterations": lambda run: run.select_tensors("a", iterations=[0, 6]),
    "regular expression": lambda run: run.select_nodes("(", use_regex=True),
    "statistics of an iteration": lambda run: run.select_tensor_statistics(iterations=9),
    "statistics of a rank": lambda run: run.select_tensor_statistics(ranks=[3]),
}


@pytest.mark.parametrize("name", WRONG_TYPES)
def test_a_wrong_type_is_a_type_error(name: str, nan: DumpAnalyzer) -> None:
    with pytest.raises(DebuggerParamTypeError) as caught:
        WRONG_TYPES[name](nan)
    assert name.partition(":")[0].split(maxsplit=1)[0] in caught.value.what
    assert caught.value.where
    assert caught.value.hint
    assert isinstance(caught.value, TypeError)
    assert caught.value.error_code == "5054B080"


@pytest.mark.parametrize("name", WRONG_VALUES)
def test_a_wrong_value_is_a_value_error(name: str, nan: DumpAnalyzer) -> None:
    with pytest.raises(DebuggerParamValueError) as caught:
        WRONG_VALUES[name](nan)
    assert isinstance(caught.value, ValueError)
    assert caught.value.hint
    assert caught.value.error_code == "5054B081"


@pytest.mark.parametrize("limit", [None, 0, 2048, 2147483647])
def test_memory_limits_of_the_old_tool_are_accepted(limit: int | None, dumps: Callable[[str], Path]) -> None:
    assert DumpAnalyzer(str(dumps("mindspore-2.0-mlp")), mem_limit=limit).get_ranks() == [0]


@pytest.mark.parametrize("limit", [1, 2047, 2147483648, -1, True])
def test_other_memory_limits_are_refused(limit: int, dumps: Callable[[str], Path]) -> None:
    with pytest.raises(DebuggerParamValueError, match="mem_limit"):
        DumpAnalyzer(dumps("mindspore-2.0-mlp"), mem_limit=limit)


def test_a_memory_limit_is_an_int(dumps: Callable[[str], Path]) -> None:
    with pytest.raises(DebuggerParamTypeError, match="mem_limit"):
        DumpAnalyzer(dumps("mindspore-2.0-mlp"), mem_limit=4096.0)


def test_a_path_without_a_dump_and_no_path(tmp_path: Path) -> None:
    with pytest.raises(NotADumpError):
        DumpAnalyzer(tmp_path)
    with pytest.raises(DebuggerParamTypeError, match="dump_dir"):
        DumpAnalyzer(None)
    with pytest.raises(DebuggerParamValueError, match="dump_dir is empty"):  # not the working directory
        DumpAnalyzer("")


def test_numbers_may_come_alone_in_lists_in_sets_and_from_numpy(nan: DumpAnalyzer) -> None:
    def steps(iterations: Any) -> list[int]:
        return [tensor.iteration for tensor in nan.select_tensors("Log-op381", iterations=iterations)]

    assert steps(3) == steps([3]) == steps({3}) == steps(np.int64(3)) == [3]
    assert steps([4, 2]) == [4, 2]
    assert steps([]) == []
    assert steps(None) == [0, 1, 2, 3, 4, 5]
    assert nan.get_iterations(0) == nan.get_iterations({0}) == nan.get_iterations()


def test_a_node_leaves_out_iterations_that_were_not_dumped(nan: DumpAnalyzer) -> None:
    (node,) = nan.select_nodes("Log-op381")
    assert [tensor.iteration for tensor in node.get_output_tensors(iterations=[5, 99, 0])] == [5, 0]
    assert [tensor.iteration for tensor in node.get_input_tensors(iterations=[99])] == []


def test_case_and_regular_expressions(nan: DumpAnalyzer) -> None:
    lower = nan.select_nodes("head.BIAS", case_sensitive=False)
    assert [node.name for node in lower] == ["head.bias", "moment1.head.bias", "moment2.head.bias"]
    assert nan.select_nodes("head.BIAS") == []
    assert nan.select_nodes("^HEAD.bias$", use_regex=True, case_sensitive=False) == lower[:1]


def test_a_closed_analyzer_says_so(dumps: Callable[[str], Path]) -> None:
    with DumpAnalyzer(dumps("mindspore-2.0-mlp")) as run:
        (tensor,) = run.select_tensors("head.bias", iterations=[0])[:1]
    run.close()
    for ask in (run.get_ranks, lambda: run.select_nodes(""), tensor.value, lambda: tensor.node.name):
        with pytest.raises(TdbgError, match="closed"):
            ask()
    assert all("closed" in repr(each) for each in (run, tensor, tensor.node))


def test_variables_show_what_they_are(nan: DumpAnalyzer) -> None:
    watchpoint = Watchpoint(nan.select_tensors("Log-op381"), TensorTooLargeCondition(max_gt=1))
    assert repr(watchpoint) == "<Watchpoint TensorTooLargeCondition(max_gt=1.0) on 6 tensors>"
    detail = nan.check_watchpoints([watchpoint])[0].get_hit_detail()
    assert repr(detail) == f"<HitDetail of TensorTooLarge: {detail}>"
    assert "mindspore-2.0-nan" in repr(nan)


def test_an_index_of_tensors_is_a_number(nan: DumpAnalyzer) -> None:
    tensors = nan.select_tensors("Log-op381")
    assert tensors[np.int64(-1)] == tensors[5]
    for index in ("0", [0, 1]):
        with pytest.raises(TypeError):
            tensors[index]


def test_versions_never_keep_a_dump_from_being_read(nan: DumpAnalyzer, analyzer: Callable[[str], DumpAnalyzer]) -> None:
    assert issubclass(VersionNotMatchError, TdbgError)
    assert analyzer("mindspore-2.10-nan").get_iterations() == nan.get_iterations()
