"""Listens to a small healthy training in a thread and saves what was kept of it: ``tdbg listen --save``."""

from __future__ import annotations

import argparse
import itertools
import tempfile
from pathlib import Path
from unittest.mock import patch

from tests.live.scripted import Script, ScriptedTraining
from tests.live.session.doubles import NET, ones
from tui_debugger.cli import listen
from tui_debugger.cli.main import main
from tui_debugger.live.dump_writer import DumpWriter
from tui_debugger.session.live import LiveSession

STEPS = 3


def listened(directory: Path) -> int:
    """Runs the command to the end of the training; returns its exit code. The clock of the dump only counts."""
    script = Script(
        graphs=[NET],
        values=lambda step: {(name, 0, False): array for name, array in ones(step).items()},
        hits=lambda _step, _watched: [],
        steps=STEPS,
    )
    trainings: list[ScriptedTraining] = []
    open_live, ticks = listen.open_live, itertools.count(1)
    with tempfile.TemporaryDirectory(prefix="tdbg") as sockets:  # paths of sockets are short
        address = f"unix:{sockets}/s"

        def opened(arguments: argparse.Namespace) -> LiveSession:
            session = open_live(arguments)
            trainings.append(ScriptedTraining(address, script))
            return session

        with patch.object(listen, "open_live", opened), patch.object(DumpWriter, "_tick", lambda _: next(ticks)):
            code = main(
                [
                    "listen",
                    "--no-screen",
                    "--timeout",
                    "20",
                    "--host",
                    address,
                    "--watch",
                    "TO",
                    "--save",
                    str(directory),
                ]
            )
        for training in trainings:
            training.join()
    return code
