"""The flight recorder on a PyTorch training: what it leaves is a dump that tdbg opens."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install tui_debugger[torch-tests]")

import tui_debugger.torch as tdbg  # noqa: E402 - imports torch
from tests.live.torch import programs  # noqa: E402
from tests.live.torch.driving import ROOT  # noqa: E402
from tests.live.torch.test_harmless import hooks_of, hooks_of_optimizers, one_step  # noqa: E402
from tui_debugger.api import DumpAnalyzer  # noqa: E402


def dumps_in(directory: Path) -> list[Path]:
    return [each for each in sorted(directory.iterdir()) if each.is_dir()]


def test_a_nan_without_a_debugger_leaves_a_dump(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    model = programs.Transformer()
    optimizer = torch.optim.AdamW(model.parameters())
    flight = tdbg.Flight(str(tmp_path), steps=3, tensor_steps=1)
    with tdbg.attach(model, optimizer, "", flight=flight):
        for step in range(4):
            if step == 3:
                programs.spoil(model)
            one_step(model, optimizer)
    assert hooks_of(model) == hooks_of_optimizers(optimizer) == []
    (dump,) = dumps_in(tmp_path)
    assert str(dump) in capfd.readouterr().err
    analyzer = DumpAnalyzer(str(dump))
    bad = {node.name for node in analyzer.select_nodes("blocks/1/feed/0") if node.name.startswith("blocks")}
    assert "blocks/1/feed/0/Linear" in bad
    assert analyzer.get_iterations() == [1, 2, 3]


def test_an_exception_leaves_a_dump(tmp_path: Path) -> None:
    model = programs.Transformer()
    optimizer = torch.optim.AdamW(model.parameters())
    handle = tdbg.attach(model, address="", flight=tdbg.Flight(str(tmp_path)))
    with tdbg.step():
        one_step(model, optimizer)
    with pytest.raises(IndexError), tdbg.step():
        model(torch.tensor([[10_000]]))
    assert len(dumps_in(tmp_path)) == 1
    handle.detach()


def test_an_exception_that_ends_the_program_leaves_a_dump_without_a_line_about_it(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.live.torch.programs", "plain", "--fail=2", f"--flight={tmp_path}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "ValueError: the data ended" in done.stderr
    (dump,) = dumps_in(tmp_path)
    assert str(dump) in done.stderr
    assert DumpAnalyzer(str(dump)).get_iterations() == [0, 1]
