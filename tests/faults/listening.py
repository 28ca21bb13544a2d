"""Listens to a small healthy training in a thread and saves what was kept of it: ``tdbg listen --save``."""

from __future__ import annotations

import argparse
import itertools
import tempfile
from contextlib import suppress
from pathlib import Path
from unittest.mock import patch

from tests.live.scripted import Script, ScriptedTraining
from tests.live.session.doubles import NET, ones
from tui_debugger.cli import listen
from tui_debugger.cli.main import main
from tui_debugger.live.dump_writer import DumpWriter
from tui_debugger.session.live import LiveSession

STEPS = 3


def listened(directory: Path, *, values: bool) -> int:
    """Runs the command to the end of the training; returns its exit code. The clock of the dump only counts.

    With ``values`` it leaves one step earlier: a training that still stands is asked for what is watched. What it
    sends lies in ``spool`` beside the directory of the result until it is saved.
    """
    script = Script(
        graphs=[NET],
        values=lambda step: {(name, 0, False): array for name, array in ones(step).items()},
        hits=lambda _step, _watched: [],
        steps=STEPS,
    )
    trainings: list[ScriptedTraining] = []
    open_live, ticks = listen.open_live, itertools.count(1)
    leaves = ("--steps", str(STEPS - 1)) if values else ()
    spool = directory.parents[1] / "spool"
    with suppress(OSError):  # then there is none, which is for the command to say
        spool.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="tdbg") as sockets:  # paths of sockets are short
        address = f"unix:{sockets}/s"

        def opened(arguments: argparse.Namespace) -> LiveSession:
            session = open_live(arguments)
            trainings.append(ScriptedTraining(address, script))
            return session

        line = ("listen", "--no-screen", "--timeout", "20", "--host", address, "--watch", "TO", *leaves)
        with (
            patch.object(listen, "open_live", opened),
            patch.object(DumpWriter, "_tick", lambda _: next(ticks)),
            patch.object(tempfile, "tempdir", str(spool)),
        ):
            code = main([*line, "--save", str(directory)])
        for training in trainings:
            training.join()
    return code
