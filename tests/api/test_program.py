"""A program written for MindInsight runs unchanged: with another import, and even with its own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tui_debugger import DumpAnalyzer, TensorOverflowCondition, Watchpoint

PROGRAM = """
{imports}

def test_debugger_offline(dump_dir):
    analyzer = DumpAnalyzer(dump_dir)
    tensors = analyzer.select_tensors(query_string="{line}", select_by="code_stack")
    watchpoint1 = Watchpoint(tensors=tensors, condition=TensorTooLargeCondition(abs_mean_gt=0.001))
    watchpoint2 = Watchpoint(tensors=tensors, condition=TensorAllZeroCondition(zero_percentage_ge=99.9))
    hits = analyzer.check_watchpoints([watchpoint1, watchpoint2])
    for hit in hits:
        detail = hit.get_hit_detail()
        print(hit.tensor.iteration, hit.tensor.node.graph_name, hit.tensor.node.name, hit.tensor.rank,
              hit.tensor.slot, hit.error_code, detail, sep="|")

test_debugger_offline(r"{dump}")
"""
"""No ``if __name__ == "__main__"``: nothing here starts another process."""
OWN = "from tui_debugger import DumpAnalyzer, Watchpoint, TensorTooLargeCondition, TensorAllZeroCondition"
THEIRS = "from mindinsight.debugger import DumpAnalyzer, Watchpoint, TensorTooLargeCondition, TensorAllZeroCondition"
IMPORTS = {
    "tui_debugger": OWN,
    "mindinsight": f"import tui_debugger.compat\ntui_debugger.compat.install()\n{THEIRS}",
}
LINE = "/data/dumps/run/A_nan_tensor_all/_run/train_nan.py:53"
"""In the demo's script: ``e = self.log(self.energy(self.abs(x), (1, 2)))``."""


@pytest.mark.parametrize("name", IMPORTS)
def test_the_program_of_the_old_manual(
    name: str, dumps: Callable[[str], Path], golden: Callable[[str], dict[str, Any]], tmp_path: Path
) -> None:
    dump = dumps("mindspore-2.0-nan")
    program = tmp_path / "program.py"
    program.write_text(PROGRAM.format(imports=IMPORTS[name], line=LINE, dump=dump))
    done = subprocess.run([sys.executable, str(program)], capture_output=True, text=True, check=True, cwd=tmp_path)
    rows = [line.split("|") for line in done.stdout.splitlines()]
    assert done.stderr == ""
    places = [(int(step), node.rpartition("/")[2]) for step, _, node, *_ in rows]
    old = golden("mindspore-2.0-nan")["neighbours"]
    ours = expected(dump, [node["id"][2].rpartition("/")[2] for node in old if any(LINE in e for e in node["stack"])])
    assert [places.count(place) for place in ours] == list(ours.values())
    assert set(places) == set(ours)
    assert [step for step, _ in places] == sorted(step for step, _ in places)
    assert {(graph, rank, slot) for _, graph, _, rank, slot, *_ in rows} == {("kernel_graph_0", "0", "0")}
    for *_, code, detail in rows:
        assert (detail == "None") == (code != "0")
        if code == "0":
            assert detail.startswith(
                "The setting for watchpoint is abs_mean_gt = 0.001. The actual value of the tensor"
            )


def expected(dump: Path, operators: list[str]) -> dict[tuple[int, str], int]:
    """How often the watchpoints find each (step, operator), by plain NumPy."""
    assert operators == ["ReduceSum-op380", "Log-op381"]
    found: dict[tuple[int, str], int] = {}
    for step in range(6):
        for name in operators:
            for path in dump.glob(f"rank_0/*/0/{step}/*.{name}.*.output.0.*.npy"):
                values = np.load(path).astype(np.float64)
                bad = not np.isfinite(values).all()
                hits = 2 if bad else int(np.abs(values).mean() > 0.001) + int((values == 0).mean() >= 0.999)
                if hits:
                    found[step, name] = hits
    return found


POOL = """
import sys
import tui_debugger.compat
tui_debugger.compat.install()
import mindinsight.debugger as md
import multiprocessing

def count(step):
    run = md.DumpAnalyzer(dump_dir=sys.argv[1])
    tensors = run.select_tensors("", iterations=[step])
    return len(list(run.check_watchpoints([md.Watchpoint(tensors, md.TensorOverflowCondition())])))

if __name__ == "__main__":
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        print(pool.map(count, [2, 3]))
"""


def test_in_other_processes(dumps: Callable[[str], Path], tmp_path: Path) -> None:
    program = tmp_path / "pool.py"
    program.write_text(POOL)
    dump = dumps("mindspore-2.0-nan")
    done = subprocess.run([sys.executable, str(program), str(dump)], capture_output=True, text=True, check=True)
    assert done.stdout == f"{[broken_outputs(dump, step) for step in (2, 3)]}\n"


def test_in_threads(nan: DumpAnalyzer, dumps: Callable[[str], Path]) -> None:
    def count(step: int) -> int:
        tensors = nan.select_tensors("", iterations=step)
        return len(nan.check_watchpoints([Watchpoint(tensors, TensorOverflowCondition())]))

    steps = [2, 3, 3, 2, 3]
    with ThreadPoolExecutor(3) as pool:
        found = list(pool.map(count, steps))
    assert found == [broken_outputs(dumps("mindspore-2.0-nan"), step) for step in steps]


def broken_outputs(dump: Path, step: int) -> int:
    """Outputs with NaN or Inf, by plain NumPy."""
    arrays = map(np.load, dump.glob(f"rank_0/*/0/{step}/*.output.*.npy"))
    return sum(array.dtype.kind == "f" and not np.isfinite(array).all() for array in arrays)
