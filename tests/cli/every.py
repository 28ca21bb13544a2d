"""Every headless command, with what it needs to be run on a dump."""

from __future__ import annotations

from pathlib import Path

COMMANDS: dict[str, tuple[str, ...]] = {
    "check": ("check", "PATH"),
    "audit": ("audit", "PATH"),
    "origin": ("origin", "PATH"),
    "explain": ("explain", "PATH", "ReLU-op2"),
    "report": ("report", "PATH"),
    "health": ("health", "PATH"),
    "ranks": ("ranks", "PATH"),
    "trend": ("trend", "PATH", "ReLU-op2"),
    "trend without NODE": ("trend", "PATH"),
    "relations": ("relations", "PATH", "ReLU-op2"),
    "ls": ("ls", "PATH"),
    "show": ("show", "PATH", "ReLU-op2"),
    "diff": ("diff", "PATH", "ReLU-op2:0"),
    "stat": ("stat", "PATH"),
    "export": ("export", "PATH", "hits", "-o", "OUT"),
    "convert": ("convert", "PATH", "-o", "OUTDIR"),
    "ls --steps": ("ls", "PATH", "--steps"),
}

OTHERS = {"listen"}
"""Commands with documents and a path at which there is no dump."""


def words(command: str, path: Path, *more: str) -> list[str]:
    """A command line about a dump; what it writes goes beside the dump."""
    named = {"PATH": str(path), "OUT": str(path.with_name("out.csv")), "OUTDIR": str(path.with_name("converted"))}
    return [*(named.get(word, word) for word in COMMANDS[command]), *more]
