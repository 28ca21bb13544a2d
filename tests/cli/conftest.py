"""Dumps that tests of several commands use."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.cli.checkpoints import write_checkpoint
from tests.cli.running import Answer, file_of, run
from tests.linked import linked, own
from tests.sources.writer import write_dump


@pytest.fixture
def dump(tmp_path: Path) -> Path:
    """Healthy: two ranks, three steps; 11 tensors each; every input file is a copy of another file."""
    return write_dump(tmp_path / "dump", ranks=(0, 1)).root


@pytest.fixture
def faulty(dumps: Callable[[str], Path], tmp_path: Path) -> Path:
    """A copy of a real dump in which one operator is wrong at step 2."""
    copy = linked(dumps("mindspore-2.0-mlp"), tmp_path / "faulty")
    file = own(file_of(next(copy.rglob("2/Tanh*.output.*")).parent, "Tanh*Tanh-op88*.output.0.*"))
    np.save(file, np.load(file) * np.float32(1.01))
    return copy


@pytest.fixture
def diff(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Callable[..., Answer]:
    """Writes two checkpoints, and returns what ``tdbg diff`` says of them."""

    def compared(a: Any, b: Any, *words: str) -> Answer:
        for side, values in (("A", a), ("B", b)):
            write_checkpoint(tmp_path / side, values)
        return run(capsys, "diff", tmp_path / "A", tmp_path / "B", *words)

    return compared
