"""Every benchmark runs at a tiny scale and yields numbers with names. What the numbers are is for a quiet machine."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path

import pytest

from tests.benchmarks.__main__ import benchmark, main, names
from tests.benchmarks.timing import Result, anonymous_peak
from tests.thorough import later
from tests.tui.idle import waiting_on_conditions

TINY = 0.004


@pytest.mark.parametrize("name", [later(name) if name in ("growth", "keys", "watch") else name for name in names()])
def test_a_benchmark_yields_finite_numbers_with_names(name: str, tmp_path: Path) -> None:
    with waiting_on_conditions():
        results = benchmark(name)(TINY, tmp_path)
    assert results
    assert all(math.isfinite(result.value) and result.value >= 0 for result in results)
    assert len({result.name for result in results} - {""}) == len(results)


def test_results_are_printed_and_an_unknown_name_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    main(["engine", "--scale", str(TINY)])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "engine"
    assert len([line for line in lines if "bar ≥" in line]) >= 3
    assert "numpy" in lines[-1]
    main(["engine", "--scale", str(TINY), "--json"])
    found = json.loads(capsys.readouterr().out)
    assert all({"name", "value", "bar", "reached"} <= result.keys() for result in found["results"]["engine"])
    with pytest.raises(SystemExit):
        main(["nothing"])


@pytest.mark.parametrize(
    ("value", "bar", "at_most", "reached"),
    [(1, None, False, True), (2, 1, False, True), (1, 2, False, False), (1, 2, True, True), (2, 1, True, False)],
)
def test_a_bar_is_reached_from_its_side(value: float, bar: float | None, at_most: bool, reached: bool) -> None:
    assert Result("speed", value, bar, at_most=at_most).reached is reached


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="RssAnon is told by Linux only")
def test_memory_of_children_counts_and_pages_of_files_do_not(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(bytes(1 << 26))
    busy = "x = b'1' * (1 << 26); [x.count(b'2') for _ in range(20)]"
    parent = f"""
import mmap, subprocess, sys
with open({str(tmp_path / "file")!r}, "rb") as file:
    mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
assert mapped.find(b"1") == -1
own = b"1" * (1 << 26)
subprocess.run([sys.executable, "-c", {busy!r}], check=True)
sys.exit(3)
"""
    peak, code = anonymous_peak([sys.executable, "-c", parent])
    assert code == 3
    assert 2 << 26 <= peak < 3 << 26
