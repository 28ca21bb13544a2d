"""A change over steps that were not dumped is said to be since the step it was compared with."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tui_debugger.cli.main import main


@pytest.mark.parametrize(
    ("steps", "since"), [((0, 1, 3), "since step 1, the last dumped before"), ((0, 1, 2), "since the previous step")]
)
def test_the_step_that_was_compared_with_is_named(
    tmp_path: Path, steps: tuple[int, ...], since: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for step in steps:
        directory = tmp_path / f"step_{step}"
        directory.mkdir()
        np.save(directory / "fc.weight.npy", np.full(4, 5 if step == steps[-1] else 1, np.float32))
    assert main(["explain", str(tmp_path), "fc.weight", "--step", str(steps[-1])]) in {0, 1}
    assert f"Changed too much {since}:" in " ".join(capsys.readouterr().out.split())
