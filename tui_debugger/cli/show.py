"""``tdbg show``: to be written."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from argparse import _SubParsersAction


def register(commands: _SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds the command."""
    commands.add_parser("show", help="show the values of a node")
