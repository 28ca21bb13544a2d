"""Makes calls of the system fail, case by case, and counts: ``python -m tests.faults``.

Tries every call of every case with every error; ``--places N`` tries N calls of each place in the program that makes
them, which takes much less. ``--minutes`` ends it earlier, and says how many cases were tried by then.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from functools import cache
from pathlib import Path
from typing import Any

from tests.conftest import archive
from tests.faults.cases import CASES, Case
from tests.faults.injection import build_shim, inject
from tui_debugger.demo import unpack


def main() -> int:
    """Returns 1 when a fault broke the promise."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("words", nargs="*", help="only cases whose name has one of these words in it")
    parser.add_argument("--places", type=int, default=0, metavar="N", help="N calls of each place in the program")
    parser.add_argument("--minutes", type=float, default=24 * 60.0, help="no case begins later")
    arguments = parser.parse_args()
    began, cases, faults, broken = time.monotonic(), 0, 0, 0
    chosen = [case for case in CASES if not arguments.words or any(word in str(case) for word in arguments.words)]
    with tempfile.TemporaryDirectory(prefix="tdbg-faults-") as folder:
        shim = build_shim(Path(folder))
        if shim is None:
            sys.exit("no C compiler at hand: the shim cannot be made")
        dumps = cache(lambda name: unpack(archive(name), Path(folder) / "dumps"))
        for case in chosen:
            if time.monotonic() - began > 60 * arguments.minutes:
                break
            with tempfile.TemporaryDirectory(dir=folder) as own:
                answer = inject(shim, case.job(Path(own), dumps, arguments.places, places=bool(arguments.places)))
            _tell(case, answer)
            cases, faults, broken = cases + 1, faults + answer["tried"], broken + len(answer["broken"])
    took = time.monotonic() - began
    sys.stdout.write(f"{cases} of {len(chosen)} cases: {faults:,} faults in {took:.0f} s, {broken} broke the promise\n")
    return 1 if broken else 0


def _tell(case: Case, answer: dict[str, Any]) -> None:
    sys.stdout.write(
        f"{case}: {answer['calls']:,} calls, {answer['tried']:,} faults, {len(answer['broken'])} broke it\n"
    )
    for each in answer["broken"]:
        sys.stdout.write(f"  {each.get('fault')}: {each['why']} (exit code {each['code']})\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
