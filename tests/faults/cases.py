"""What is tried: a command on a dump, and which of its files fail."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.faults.dumps import LAYOUTS, Dumps
from tests.faults.injection import Job

COMMANDS: Final[dict[str, tuple[str, ...]]] = {
    "check": ("check", "DUMP", "--watch", "TO", "--json", "--jobs", "1"),
    "origin": ("origin", "DUMP", "--json", "--jobs", "1"),
    "stat": ("stat", "DUMP", "--csv", "--jobs", "1"),
    "report": ("report", "DUMP", "--watch", "TO", "--jobs", "1", "-o", "OUT/report.md"),
    "export to one file": ("export", "DUMP", "tensors", "-o", "OUT/tensors.npz"),
    "export to files": ("export", "DUMP", "tensors", "-o", "OUT/tensors/"),
    "diff": ("diff", "DUMP", "DUMP", "--json"),
    "audit": ("audit", "DUMP", "--json", "--jobs", "1"),
    "screen": ("screen", "DUMP"),
    "listen": ("listen", "OUT/saved"),
    "listen with values": ("listen", "OUT/saved", "values"),
}
_READING: Final = tuple(command for command in COMMANDS if not command.startswith("listen"))
_WRITING: Final = ("report", "export to one file", "export to files")
_REMEMBERING: Final = ("check", "origin", "stat")
"""Commands that fill the index of earlier sessions."""
_AUDITED: Final = ("mindspore", "msprobe")
"""Layouts that say what operator made a tensor: only those can be audited."""


@dataclass(frozen=True)
class Case:
    """A command, and what fails.

    Attributes:
        layout: of the dump; empty: it reads none.
        command: one of ``COMMANDS``.
        fails: ``dump``, ``index`` (of earlier sessions), ``out``, where it writes, or ``spool``, where it keeps what a
            training sends.
        warm: the index knows the dump already.
    """

    layout: str
    command: str
    fails: str
    warm: bool = False

    def __str__(self) -> str:
        """Its name: what is read, by which command, what fails."""
        return "-".join(filter(None, (self.layout, self.command, self.fails, "warm" * self.warm)))

    def job(self, folder: Path, dumps: Dumps, tries: int, *, places: bool = False) -> Job:
        """Puts the dump into a directory; another one lies beside it, which nobody asks for."""
        dump, work = folder / "dump", folder / "work"
        if self.layout:
            LAYOUTS["arrays"](folder / "another", dumps)
            LAYOUTS[self.layout](dump, dumps)
        below = {"dump": dump, "index": work / "cache", "out": work / "out", "spool": work / "spool"}[self.fails]
        line = [word.replace("DUMP", str(dump)).replace("OUT", f"{work}/out") for word in COMMANDS[self.command]]
        return Job(line, str(below), str(work), tries, places, self.warm, index=self.fails == "index")


def _all() -> list[Case]:
    found = []
    for layout in LAYOUTS:
        for command in _READING:
            if command == "audit" and layout not in _AUDITED:
                continue
            found.append(Case(layout, command, "dump"))
            if command in _REMEMBERING:
                found += [Case(layout, command, fails, warm) for fails, warm in (("dump", True), ("index", False))]
                found.append(Case(layout, command, "index", warm=True))
            if command in _WRITING:
                found.append(Case(layout, command, "out"))
    return [*found, Case("", "listen", "out"), *(Case("", "listen with values", fails) for fails in ("out", "spool"))]


CASES: Final = _all()
EVERY_DAY: Final = {
    "mindspore-check-dump",
    "msprobe-origin-dump",
    "checkpoint-stat-dump",
    "converted-check-dump",
    "msprobe-diff-dump",
    "arrays-export to one file-dump",
    "arrays-screen-dump",
    "megatron-check-dump-warm",
    "arrays-check-index",
    "arrays-check-index-warm",
    "arrays-export to files-out",
    "sglang-report-out",
    "listen-out",
    "listen with values-out",
    "listen with values-spool",
}
"""The names of those of which every run tries a few faults."""
