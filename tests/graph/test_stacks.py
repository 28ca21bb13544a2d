"""Source stacks: every syntax of MindSpore 2.0 to 2.10, and the index by line."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.graph.graphs import DUMPS, OLD_DUMPS, graph, op, real_table, row
from tui_debugger.graph.build import build_table
from tui_debugger.graph.search import NodeQuery, match
from tui_debugger.graph.stacks import is_framework, parse_stack, search, stack_index
from tui_debugger.model import Frame

Dumps = Callable[[str], Path]
Golden = Callable[[str], dict[str, Any]]


def one(line: str) -> Frame:
    (frame,) = parse_stack(line)
    return frame


def test_a_plain_entry() -> None:
    frame = one("      # In file /p/train.py:31/        return self.div(x, y)/")
    assert frame == Frame("/p/train.py", 31, "return self.div(x, y)", end_line=31)


def test_an_entry_with_a_column_range() -> None:
    frame = one("      # In file /p/train.py:31, 36~47/        return self.div(x, y)/")
    assert (frame.path, frame.line, frame.end_line, frame.context) == ("/p/train.py", 31, 31, False)
    assert frame.code == "return self.div(x, y)"


def test_an_enclosing_function_is_context() -> None:
    frame = one("      # In file /p/train.py:30~31, 4~53/    def construct(self, x):/")
    assert (frame.line, frame.end_line, frame.context, frame.code) == (30, 31, True, "def construct(self, x):")


@pytest.mark.parametrize(
    ("text", "depth", "begins"),
    [("# In file", 0, False), ("#  - In file", 1, True), ("#    In file", 1, False), ("In file", 0, False)],
)
def test_depth_and_sub_stacks(text: str, depth: int, begins: bool) -> None:
    frame = one(f"      {text} /p/a.py:1/    x/")
    assert (frame.depth, frame.substack) == (depth, begins)


def test_headers_tell_whose_code_follows() -> None:
    text = """      # Corresponding code candidate:
      #  - In file /p/a.py:1/    x/
      # Corresponding forward node candidate:
      #  - In file /p/a.py:2/    y/
      #    In file /p/a.py:3/    z/
      # Corresponding code candidate:
      #  - In file /p/a.py:4/    w/
"""
    assert [(frame.line, frame.forward) for frame in parse_stack(text)] == [
        (1, False),
        (2, True),
        (3, True),
        (4, False),
    ]


@pytest.mark.parametrize(
    ("line", "path", "number", "code"),
    [
        ("# In file /p/a.py:3/    y = a / b/", "/p/a.py", 3, "y = a / b"),
        ("# In file /p/a.py:3/    y = x[1:2/1] # /etc:9//", "/p/a.py", 3, "y = x[1:2/1] # /etc:9/"),
        ("# In file /p:1/q/a.py:3/    y/", "/p:1/q/a.py", 3, "y"),
        ("# In file /my dir, 3~4/a.py:3, 1~2/    y/", "/my dir, 3~4/a.py", 3, "y"),
        ("# In file <ipython-input-3>:7/    y/", "<ipython-input-3>", 7, "y"),
        ("# In file C:\\p\\a.py:7/    y/", "C:\\p\\a.py", 7, "y"),
        ("# In file /p/a.py:3//", "/p/a.py", 3, ""),
        ("# In file /p/a.py:3/    no slash at the end", "/p/a.py", 3, "no slash at the end"),
        ("# In file /p/a.py:3/    tab\tand \x1b[31m stay /", "/p/a.py", 3, "tab\tand \x1b[31m stay"),
        ("# In file /p/a.py:3/    form\x0cfeed and \u2028 stay/", "/p/a.py", 3, "form\x0cfeed and \u2028 stay"),
        ("# In file /p/[red]a.py:3/    y/\r", "/p/[red]a.py", 3, "y"),
    ],
)
def test_paths_and_code_may_hold_anything(line: str, path: str, number: int, code: str) -> None:
    frame = one(line)
    assert (frame.path, frame.line, frame.code) == (path, number, code)


@pytest.mark.parametrize(
    "text", ["", "nonsense", "# In file", "# In file /p/a.py", "# In file /p/a.py:x/ y/", "In file :/"]
)
def test_other_lines_are_skipped(text: str) -> None:
    assert parse_stack(text) == ()


@given(st.text(max_size=200))
def test_no_text_makes_the_parser_fail(text: str) -> None:
    for frame in parse_stack(text + "\n# In file " + text):
        assert frame.path
        assert frame.end_line >= frame.line >= 0


_PATHS = st.from_regex(r"/[a-z \[\]:/0-9]{1,20}\.py", fullmatch=True).filter(lambda p: not re.search(r"\.py\S*:\d", p))


@given(_PATHS, st.integers(1, 99999), st.text("abc/:0123456789~,. ", max_size=30), st.booleans())
def test_an_entry_survives_the_round_trip(path: str, line: int, code: str, columns: bool) -> None:
    where = f"{line}, 3~14" if columns else f"{line}"
    frame = one(f"      # In file {path}:{where}/        {code}/")
    assert (frame.path, frame.line, frame.code) == (path, line, code.strip())


@pytest.mark.parametrize(
    ("path", "framework"),
    [
        ("/opt/venv/lib/python3.9/site-packages/mindspore/nn/layer/basic.py", True),
        ("/usr/lib/python3/dist-packages/x.py", True),
        ("/home/me/mindspore/nn/layer/basic.py", True),
        ("/build/mindspore/python/mindspore/x.py", True),
        ("/src/torch/nn/modules/linear.py", True),
        ("/usr/lib/python3.11/contextlib.py", True),
        ("/home/me/train.py", False),
        ("/home/me/mindspore/train.py", False),
        ("/home/me/torch_project/nn/net.py", False),
        ("nn/net.py", False),
    ],
)
def test_framework_files(path: str, framework: bool) -> None:
    assert is_framework(path) is framework


# Real stacks


def shown(frame: Frame) -> str:
    """As the old tool shows a frame."""
    return f"# {'-' if frame.substack else ' '} {frame.path}:{frame.line}  {frame.code}"


@pytest.mark.parametrize("dump", OLD_DUMPS)
def test_stacks_are_those_of_the_old_tool(dumps: Dumps, golden: Golden, dump: str) -> None:
    table = real_table(dumps, dump)
    for each in golden(dump)["neighbours"]:
        wanted = [line for line in each["stack"] if "candidate:" not in line]
        assert [shown(frame) for frame in table.stack(table.find(each["id"][2]))] == wanted


@pytest.mark.parametrize("dump", DUMPS)
def test_the_innermost_frame_comes_first(dumps: Dumps, dump: str) -> None:
    table = real_table(dumps, dump)
    net = next(name for name in table.names if "/act1-ReLU/" in name or "/norm-RowNorm/Div" in name)
    statements = [frame for frame in table.stack(table.find(net)) if not frame.context]
    assert not statements[-1].path.endswith(("train_mlp.py", "train_nan.py"))
    assert statements[-1].path.endswith("cell_wrapper.py")
    assert any(frame.path.endswith((".py",)) and not frame.framework for frame in statements)


def test_context_entries_of_2_10(dumps: Dumps) -> None:
    table = real_table(dumps, "mindspore-2.10-nan")
    stack = table.stack(row(table, "norm-RowNorm/Div-op0"))
    assert [(frame.line, frame.end_line, frame.context) for frame in stack[:2]] == [(31, 31, False), (30, 31, True)]


@pytest.mark.parametrize("dump", DUMPS)
def test_backward_nodes_carry_frames_of_their_forward_node(dumps: Dumps, dump: str) -> None:
    table = real_table(dumps, dump)
    backward = [node for node, name in enumerate(table.names) if name.startswith("Gradients/")]
    assert any(frame.forward for node in backward for frame in table.stack(node))


# The index


@pytest.mark.parametrize("dump", DUMPS)
def test_the_index_holds_user_files_first_and_every_line_once(dumps: Dumps, dump: str) -> None:
    index = stack_index(real_table(dumps, dump))
    assert [file.framework for file in index.files] == sorted(file.framework for file in index.files)
    assert not index.files[0].framework
    assert len({file.path for file in index.files}) == len(index.files)
    for file in index.files:
        numbers = [line.line for line in file.lines]
        assert numbers == sorted(set(numbers))
        assert all((np.diff(line.rows) > 0).all() and len(line.rows) for line in file.lines)


@pytest.mark.parametrize("dump", DUMPS)
def test_the_rows_of_a_line_are_those_whose_stack_names_it(dumps: Dumps, dump: str) -> None:
    table = real_table(dumps, dump)
    for file in stack_index(table).files:
        for line in file.lines:
            wanted = [
                node
                for node in range(len(table))
                if not table.structural[node]
                and any((f.path, f.line) == (file.path, line.line) and not f.context for f in table.stack(node))
            ]
            assert line.rows.tolist() == wanted
            assert np.flatnonzero(match(table, NodeQuery(line=(file.path, line.line)))).tolist() == wanted


@pytest.mark.parametrize(("dump", "keyword"), [(d, k) for d in OLD_DUMPS for k in ("construct", "self.act")])
def test_searching_lines_finds_the_nodes_the_old_tool_finds(
    dumps: Dumps, golden: Golden, dump: str, keyword: str
) -> None:
    table = real_table(dumps, dump)
    (answer,) = (v for k, v in golden(dump)["select"].items() if k.startswith(f'["{keyword}"') and "code_stack" in k)
    lines = [line for file in search(stack_index(table), holds(keyword)).files for line in file.lines]
    found = {int(node) for line in lines for node in line.rows}
    wanted = {table.find(each[2]) for each in answer["nodes"]}
    assert found == {node for node in wanted if not table.structural[node]}


def holds(part: str) -> Callable[[str], bool]:
    return lambda text: part.lower() in text.lower()


def test_searching_looks_at_path_line_and_code(dumps: Dumps) -> None:
    index = stack_index(real_table(dumps, "mindspore-2.0-nan"))
    for text in ("TRAIN_NAN.py:31", "self.DIV(x", ":31 return"):
        found = search(index, holds(text))
        assert [(file.path.rpartition("/")[2], [line.line for line in file.lines]) for file in found.files] == [
            ("train_nan.py", [31])
        ]
    assert search(index, holds("no such line")).files == ()
    assert [file.lines for file in search(index, holds("")).files] == [file.lines for file in index.files]


def test_context_makes_no_line_and_structural_nodes_no_row() -> None:
    source = "# In file /p/a.py:5/    y/\n# In file /p/a.py:3~9/    def f():/"
    table = build_table([graph([op(1, "A-op1", source=source), op(2, "Depend-op2", ["1"], source=source)])])
    (file,) = stack_index(table).files
    assert [(line.line, line.code, line.rows.tolist()) for line in file.lines] == [(5, "y", [0])]


def test_a_table_without_stacks_has_an_empty_index() -> None:
    assert stack_index(build_table([])).files == ()
    assert stack_index(build_table([graph([op(1, "A-op1")])])).files == ()
