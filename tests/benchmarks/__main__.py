"""Runs benchmarks and prints what they measured: ``python -m tests.benchmarks [NAME ...]``."""

from __future__ import annotations

import argparse
import importlib
import json
import os
import pkgutil
import platform
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import cast

from tests.benchmarks.timing import Result

Run = Callable[[float, Path], list[Result]]
NOT_BENCHMARKS = {"dumps", "timing"}


def names() -> list[str]:
    """The benchmarks there are: the modules beside this one that have a ``run``."""
    found = (module.name for module in pkgutil.iter_modules([str(Path(__file__).parent)]))
    return [name for name in found if name not in NOT_BENCHMARKS and not name.startswith(("_", "test_"))]


def benchmark(name: str) -> Run:
    """What runs a benchmark at a scale, in a folder for its files."""
    return cast("Run", importlib.import_module(f"{__package__ or 'tests.benchmarks'}.{name}").run)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs what was asked for; 1 when a bar was not reached."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"one of {', '.join(names())} (default: all)")
    parser.add_argument("--scale", type=float, default=1.0, help="part of the full size, for a quick look (1.0)")
    parser.add_argument("--folder", type=Path, help="where the files go for a while (default: the temporary folder)")
    parser.add_argument("--json", action="store_true", help="machine-readable results")
    asked = parser.parse_args(arguments)
    if unknown := sorted(set(asked.names) - set(names())):
        parser.error(f"no benchmark {', '.join(unknown)}; there are {', '.join(names())}")
    results: dict[str, list[Result]] = {}
    for name in asked.names or names():
        with tempfile.TemporaryDirectory(prefix=f"tdbg-{name}-", dir=asked.folder) as folder:
            results[name] = benchmark(name)(asked.scale, Path(folder))
        if not asked.json:
            _say(table(name, results[name]))
    if asked.json:
        found = {
            name: [asdict(result) | {"reached": result.reached} for result in each] for name, each in results.items()
        }
        _say(json.dumps({"machine": machine(), "scale": asked.scale, "results": found}, indent=2))
    else:
        _say(f"\nscale {asked.scale:g} on {machine()}")
    return 0 if all(result.reached for each in results.values() for result in each) else 1


def table(title: str, results: Iterable[Result]) -> str:
    """Results below each other, one line each."""
    lines = [[_value(result), _bar(result), result.name, result.note] for result in results]
    widths = [max((len(line[column]) for line in lines), default=0) for column in range(3)]
    rows = [
        f"  {value:>{widths[0]}}  {bar:<{widths[1]}}  {name:<{widths[2]}}  {note}".rstrip()
        for value, bar, name, note in lines
    ]
    return "\n".join([title, *rows])


def machine() -> str:
    """What the numbers were measured on."""
    model = ""
    info = Path("/proc/cpuinfo")
    if info.exists():
        model = next((line.split(":", 1)[1].strip() for line in info.open() if line.startswith("model name")), "")
    import numpy as np

    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return (
        f"{cores} cores of {model or platform.machine()}, {platform.system()}, "
        f"Python {platform.python_version()}, numpy {np.__version__}"
    )


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _value(result: Result) -> str:
    return f"{result.value:.3g} {result.unit}"


def _bar(result: Result) -> str:
    if result.bar is None:
        return ""
    return f"{'ok' if result.reached else 'MISSED'} (bar {'≤' if result.at_most else '≥'} {result.bar:g})"


if __name__ == "__main__":
    sys.exit(main())
