"""Writes a tree: see the package."""

from __future__ import annotations

import argparse
from pathlib import Path

from tests.trees import generator


def main() -> None:
    """Writes it and says what is in it."""
    parser = argparse.ArgumentParser(prog="python -m tests.trees")
    parser.add_argument("kind", choices=["bad", "healthy"])
    parser.add_argument("seed", type=int)
    parser.add_argument("directory", type=Path)
    asked = parser.parse_args()
    root, tree = (generator.bad if asked.kind == "bad" else generator.healthy)(asked.seed, asked.directory)
    print(f"{root}\n{tree}")  # noqa: T201 - a command


if __name__ == "__main__":
    main()
