"""A file that another file names, and that does not exist, is a doubt: nobody read its tensor."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

import pytest

from tests.cli.running import run
from tests.sources.ascend_trees import TIME, Planted, atb

Capsys = pytest.CaptureFixture[str]

DIRECTORIES: Final = (f"{TIME}/0/model/1/0", "rank_0/net/0/0", "step0", ".")
"""Devices, hosts, and what the vendor's converter writes, by steps and alone."""
FIRST: Final = "Add.Default_Add_1.1.2.1700000000000001"
OTHER: Final = "Add.Default_Add_2.2.2.1700000000000002"
SHORT: Final = "0123456789abcdef0123456789abcdef"
LONE: Final = {"max": float("nan"), "min": 1.0, "mean": 1.0, "norm": 1.0, "shape": [2, 3]}


def checked(capsys: Capsys, root: Path) -> tuple[int, str]:
    answer = run(capsys, "check", root, "--watch", "TO", "--no-cache", "--jobs", "1")
    return answer.code, answer.out


def arrays(directory: Path, *names: str) -> None:
    for name in names:
        Planted().array(directory / f"{name}.npy")


@pytest.mark.parametrize("where", DIRECTORIES)
@pytest.mark.parametrize("ending", ["", ".npy"])
def test_a_row_of_the_mapping(where: str, ending: str, tmp_path: Path, capsys: Capsys) -> None:
    directory = tmp_path / where
    arrays(directory, f"{FIRST}.output.0", SHORT)
    (directory / "mapping.csv").write_text(f"{SHORT}{ending},{OTHER}.output.0.npy\n")
    assert checked(capsys, tmp_path)[0] == 0
    (directory / f"{SHORT}.npy").unlink()
    code, said = checked(capsys, tmp_path)
    assert (code, f"{SHORT} (is not there: mapping.csv names it for {OTHER}" in said) == (2, True)


def test_many_rows_are_told_by_the_first(tmp_path: Path, capsys: Capsys) -> None:
    arrays(tmp_path / "step0", f"{FIRST}.output.0")
    rows = [f"{number:032x},{OTHER}.output.{number}.npy\n" for number in range(9)]
    (tmp_path / "step0/mapping.csv").write_text("".join(rows))
    code, said = checked(capsys, tmp_path)
    assert (code, "the first of 9 files" in said) == (2, True)


def test_a_mapping_of_another_program_names_no_files(tmp_path: Path, capsys: Capsys) -> None:
    arrays(tmp_path, "image")
    (tmp_path / "mapping.csv").write_text("0,cat\n1,dog\n")
    assert checked(capsys, tmp_path)[0] == 0


@pytest.mark.parametrize("where", DIRECTORIES)
def test_a_file_that_was_not_converted(where: str, tmp_path: Path, capsys: Capsys) -> None:
    directory = tmp_path / where
    arrays(directory, f"{FIRST}.output.0")
    for line, missing in ((f"{OTHER}\n", OTHER), (f"{FIRST},output:1\n", FIRST), (f"{FIRST},output:0,input:0", FIRST)):
        (directory / "convert_failed_file_list.txt").write_text(f"/data/dump/{line}")
        code, said = checked(capsys, tmp_path)
        assert (code, f"{missing} (was not converted" in said) == (2, True)
    for healthy in ("", "\n", f"/data/dump/{FIRST},output:0\n"):
        (directory / "convert_failed_file_list.txt").write_text(healthy)
        assert checked(capsys, tmp_path)[0] == 0


def test_a_file_that_was_not_converted_and_lies_there_is_read_itself(tmp_path: Path, capsys: Capsys) -> None:
    directory = tmp_path / DIRECTORIES[0]
    arrays(directory, f"{FIRST}.output.0")
    for bad, code in ((-1, 0), (0, 1)):
        path = Planted(bad).device_file(directory)
        (directory / "convert_failed_file_list.txt").write_text(f"/data/dump/{path.name}\n")
        assert checked(capsys, tmp_path)[0] == code


@pytest.mark.parametrize(
    ("named", "code"),
    [
        ("../../after/outtensor0.bin", 0),
        ("/old/data/0_4711/0/0_Decoder_layer/0_Linear/after/outtensor0.bin", 0),
        ("outtensor7.bin", 2),
        ("/old/data/0_4711/0/0_Decoder_layer/0_Linear/after/outtensor7.bin", 2),
        ("intensor0.bin", 2),
    ],
)
def test_values_of_atb_in_another_file(named: str, code: int, tmp_path: Path, capsys: Capsys) -> None:
    """The last one names itself."""
    atb(tmp_path, Planted())
    (path,) = (tmp_path / "atb_dump_data/data/0_4711/0").rglob("intensor0.bin")
    path.write_bytes(f"$Version=1.0\n$Object.Count=0\n$Object.Length=0\ndata={named}\ndims=2,3\n$End=1\n".encode())
    found, said = checked(capsys, tmp_path)
    assert (found, f"names a file of values that is not there: {named}" in said) == (code, code == 2)


@pytest.mark.parametrize(
    ("saved", "names"),
    [
        (LONE, ["loss"]),
        ([LONE, LONE], ["loss.0", "loss.1"]),
        ({"a": LONE, "b": LONE}, ["loss.a", "loss.b"]),
    ],
    ids=["one", "list", "dictionary"],
)
@pytest.mark.parametrize("batch", ["", "micro_step1"])
def test_a_saved_tensor_without_its_file(
    saved: object, names: list[str], batch: str, tmp_path: Path, capsys: Capsys
) -> None:
    directory = tmp_path / "data/loss/step0/rank0" / batch
    arrays(directory, *names)
    (directory / "loss.json").write_text(json.dumps({"data": saved}))
    arrays(tmp_path / "data/grad/step0/rank0", "grad")
    (tmp_path / "data/grad/step0/rank0/grad.json").write_text(json.dumps({"data": LONE}))
    assert checked(capsys, tmp_path)[0] == 0
    (directory / f"{names[-1]}.npy").unlink()
    code, said = checked(capsys, tmp_path)
    assert (code, f"loss.json (names a file of values that is not there: {names[-1]}.npy)" in said) == (2, True)


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"data": 1}', "[" * 100_000])
def test_a_damaged_list_of_saved_tensors(text: str, tmp_path: Path, capsys: Capsys) -> None:
    arrays(tmp_path / "data/loss/step0/rank0", "loss")
    (tmp_path / "data/loss/step0/rank0/loss.json").write_text(text)
    assert checked(capsys, tmp_path)[0] == 2
