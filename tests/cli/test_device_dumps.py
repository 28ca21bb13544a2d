"""Asynchronous dumps of Ascend servers, without a screen: what overflowed, where it began, in which line."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

from tests.ascend_files import (
    LONG,
    OVERFLOWING,
    DeviceDump,
    Overflow,
    Written,
    file_bytes,
    nano_bytes,
    new_overflow_bytes,
    overflow_bytes,
    take_for_long,
    task_of,
    write,
    write_device_dump,
    write_long_tensors,
    write_overflowing_dump,
)
from tui_debugger.cli import show_report
from tui_debugger.cli.main import main
from tui_debugger.session import export_files

Capture = pytest.CaptureFixture[str]
MATMUL, RELU, MOMENTUM = (node.name for node in OVERFLOWING.nodes)


def ask(capsys: Capture, *words: object) -> tuple[int, str]:
    code = main([str(word) for word in (*words, "--no-cache")])
    captured = capsys.readouterr()
    return code, captured.out + captured.err


@pytest.fixture
def dump(tmp_path: Path) -> DeviceDump:
    """Two ranks; at step 2 of rank 1 an operator overflows to infinity, at step 1 of rank 0 it saturates."""
    return write_overflowing_dump(tmp_path)


def test_operators_that_overflowed_are_findings(dump: DeviceDump, capsys: Capture) -> None:
    code, text = ask(capsys, "check", dump.writer.root, "--watch", "OO", "--json")
    document = json.loads(text)
    assert code == 1
    assert [(each["rank"], each["step"], each["node"], each["detail"]) for each in document["hits"]] == [
        (0, 1, RELU, f"overflowed on the device: AI Core status 0x20 (task {task_of(RELU)}, stream 2, block 4)"),
        (1, 2, RELU, f"overflowed on the device: AI Core status 0x8 (task {task_of(RELU)}, stream 2, block 0)"),
    ]
    code, text = ask(capsys, "check", dump.writer.root, "--watch", "OO", "--rank", "0")
    assert code == 1
    assert "  OO       overflowed on the device: AI Core status 0x20" in text


def test_steps_without_any_are_clean_where_the_dump_would_tell(dump: DeviceDump, capsys: Capture) -> None:
    code, text = ask(capsys, "check", dump.writer.root, "--watch", "OO", "--rank", "0", "--step", "0")
    assert (code, text.splitlines()[-1]) == (0, "clean")
    assert "3 tensors checked" in text


def test_where_it_would_not_tell_nothing_is_clean(tmp_path: Path, capsys: Capture) -> None:
    write_device_dump(tmp_path, op_debug_mode=0)
    code, text = ask(capsys, "check", tmp_path, "--watch", "OO")
    assert code == 2
    assert "nothing here tells what the device recorded of operators that overflow" in text


def test_an_overflow_of_an_operator_that_was_not_dumped_is_a_doubt(tmp_path: Path, capsys: Capture) -> None:
    write_device_dump(tmp_path).overflow(1, overflow_bytes({"AI Core": Overflow(77, 2, 1)}))
    code, text = ask(capsys, "check", tmp_path, "--watch", "OO")
    assert code == 2
    assert "no file here is known to be of the operator that overflowed" in text


def test_the_origin_leads_to_its_source_line(dump: DeviceDump, capsys: Capture) -> None:
    code, text = ask(capsys, "origin", dump.writer.root)
    assert code == 1
    assert "origin: rank 1, step 2  (ReLU)" in text
    assert "overflowed on the device: AI Core status 0x8" in text
    assert "/root/net/train.py:31" in text


def test_where_no_value_shows_an_overflow_the_origin_names_the_record(tmp_path: Path, capsys: Capture) -> None:
    """A device that cuts off what is too large writes neither NaN nor Inf."""
    recorded = write_device_dump(tmp_path)
    assert "device" not in ask(capsys, "origin", tmp_path)[1]
    recorded.overflow(1, overflow_bytes({"AI Core": Overflow(task_of(RELU), 2, 0x20)}))
    code, text = ask(capsys, "origin", tmp_path)
    assert code == 0
    assert f"the device recorded an overflow of an operator, such as {RELU} at step 1 of rank 0" in text
    assert f"tdbg origin {tmp_path} --watch OO" in text
    code, text = ask(capsys, "origin", tmp_path, "--watch", "OO")
    assert code == 1
    assert "origin: rank 0, step 1  (ReLU)" in text


def test_what_overflowed_without_infinity_is_explained_with_its_source_line(dump: DeviceDump, capsys: Capture) -> None:
    _, text = ask(capsys, "explain", dump.writer.root, RELU, "--step", "1", "--rank", "0", "--watch", "OO")
    words = " ".join(text.split())
    assert f"the device recorded an overflow of this operator: AI Core status 0x20 (task {task_of(RELU)}" in words
    assert "written in /root/net/train.py:31" in words


def test_values_are_shown_in_the_order_of_the_program(dump: DeviceDump, capsys: Capture) -> None:
    values = dump.step(3, OVERFLOWING)
    code, text = ask(capsys, "show", dump.writer.root, f"{RELU}:0", "--step", "3", "--rank", "0", "--json")
    assert code == 0
    assert np.allclose(np.array(json.loads(text)["tensors"][0]["values"]), values[RELU], atol=1e-4)


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("show", "ReLU-op2:0", "--step", "1"), "float32"),
        (("show", "ReLU-op2:0", "[3, 5, ...]", "--step", "1"), "[3, 5, :, :]"),
        (("show", "ReLU-op2:0", "--stat", "--step", "1"), "float32"),
        (("show", "ReLU-op2:0", "--distribution", "--step", "1"), "percentiles"),
        (("show", "ReLU-op2:0", "--heat", "--step", "1"), "cell"),
        (("show", "ReLU-op2:0", "[:, :, 3, 4]", "--heat", "--step", "1"), "[:, :, 3, 4]"),
        (("diff", "ReLU-op2:0", "--step", "1"), "equal: all 983,040 elements"),
        (("check", "--watch", "TO", "--watch", "TL mean_gt=9"), "checked"),
    ],
)
def test_a_long_tensor_is_never_converted_as_a_whole(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], line: str
) -> None:
    write_long_tensors(tmp_path)
    converted = take_for_long(monkeypatch)
    monkeypatch.setattr(show_report, "_PIECE", 1 << 16)
    code, text = ask(capsys, words[0], tmp_path, *words[1:], "--jobs", "1")
    assert code in (0, 1), text
    assert line in text
    assert 0 < converted.most <= math.prod(LONG) // 3


def test_a_long_tensor_is_written_piece_by_piece(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = write_long_tensors(tmp_path / "dump")
    converted = take_for_long(monkeypatch)
    monkeypatch.setattr(export_files, "_PIECE", 1 << 16)
    for name in ("one.npy", "all.npz", "files/"):
        code, text = ask(
            capsys, "export", tmp_path / "dump", "tensors", "-o", f"{tmp_path}/{name}", "--step", "1", "--slot", "0"
        )
        assert code == 0, text
    assert (np.load(tmp_path / "one.npy") == values).all()
    assert 0 < converted.most <= math.prod(LONG) // 3


@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize("name", ["12345", "0123456789abcdef" * 2])
@pytest.mark.parametrize("small", [False, True])
def test_a_file_whose_name_says_nothing_is_a_doubt(
    tmp_path: Path, capsys: Capture, inside: bool, name: str, small: bool
) -> None:
    dump = write_device_dump(tmp_path, steps=(0,))
    assert ask(capsys, "check", tmp_path, "--watch", "TO")[0] == 0
    bad = np.full(3, np.nan, np.float32)
    content = nano_bytes([(bad, 0)], []) if small else file_bytes(outputs=[Written(bad)])
    write((dump.writer.step(0) if inside else tmp_path / "loose") / name, content)
    code, text = ask(capsys, "check", tmp_path, "--watch", "TO")
    assert (code, name in text) == (2, True)


@pytest.mark.parametrize(("status", "code", "words"), [(0x20, 1, "overflow"), (0, 2, "no status is set")])
def test_a_record_of_the_new_layout_names_the_operator_or_nobody(
    tmp_path: Path, capsys: Capture, status: int, code: int, words: str
) -> None:
    dump = write_device_dump(tmp_path, steps=(0,))
    dump.overflow(0, new_overflow_bytes("AIV", 1, task_id=task_of(RELU), stream_id=2, status=status))
    found, text = ask(capsys, "check", tmp_path, "--watch", "OO")
    assert (found, words in text) == (code, True)
    assert (RELU.rpartition("/")[2] in text) is (status > 0)
