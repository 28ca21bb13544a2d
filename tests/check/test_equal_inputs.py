"""Which inputs of a dump without a graph are left to another file that holds the same: never one with NaN or Inf.

Statistics tell values apart, but for those with NaN: it hides how the others are, and where it stands.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pytest

from tests.ascend_files import Written, file_bytes, write
from tests.cli.running import run

Capsys = pytest.CaptureFixture[str]
NAN: Final = float("nan")
DIRECTORY: Final = "20240102030405/0/model/1/0"
HEALTHY: Final = np.zeros(2, np.float32)


def array(*values: float, dtype: str = "float32") -> npt.NDArray[Any]:
    return np.array(values, dtype)


def counts(capsys: Capsys, root: Path, *options: str) -> tuple[int, int, int]:
    """Exit code, findings, tensors that were left to others."""
    answer = run(capsys, "check", root, "--watch", "TO", "--json", "--no-cache", "--jobs", "1", *options)
    said = json.loads(answer.out)
    return answer.code, said["findings"], said["coverage"]["skipped"]


def dump(root: Path, made: npt.NDArray[Any], read: npt.NDArray[Any], wrote: npt.NDArray[Any] = HEALTHY) -> None:
    """One operator that makes a tensor, and one that reads one."""
    write(root / DIRECTORY / "Add.made.1.2.1700000000000001", file_bytes((), [Written(made)]))
    write(root / DIRECTORY / "Add.read.2.2.1700000000000002", file_bytes([Written(read)], [Written(wrote)]))


@pytest.mark.parametrize(
    ("made", "read"),
    [
        (array(1, 2, NAN, 3), array(1, 2, NAN, 3)),
        (array(1, 2, NAN, 3), array(1, NAN, 2, 3)),
        (array(NAN), array(NAN, dtype="float16")),
        (array(NAN, NAN, 1), array(NAN, 1, NAN)),
        (array(np.inf, 1, 2), array(1, 2, np.inf)),
    ],
    ids=["equal", "another place", "another type", "two", "Inf"],
)
def test_an_input_with_nan_is_found_beside_what_may_have_made_it(
    made: npt.NDArray[Any], read: npt.NDArray[Any], tmp_path: Path, capsys: Capsys
) -> None:
    dump(tmp_path, made, read)
    assert counts(capsys, tmp_path) == (1, 2, 0)


def test_an_input_with_nan_is_found_beside_what_its_own_operator_wrote(tmp_path: Path, capsys: Capsys) -> None:
    dump(tmp_path, array(1, 2), array(NAN, NAN), array(NAN, NAN))
    assert counts(capsys, tmp_path) == (1, 2, 0)


@pytest.mark.parametrize(
    ("dtype", "left"), [("float32", 1), ("float16", 0)], ids=["the same tensor", "the same numbers in another type"]
)
def test_a_healthy_input_is_left_to_the_output_that_it_equals(
    dtype: str, left: int, tmp_path: Path, capsys: Capsys
) -> None:
    dump(tmp_path, array(1, 2, 4, 3), array(1, 2, 4, 3, dtype=dtype))
    assert counts(capsys, tmp_path) == (0, 0, left)
