"""``tdbg demo --live``: a recorded training and the screen of ``tdbg listen``, over a socket of this machine."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Final

from tui_debugger.demo import demo_dump
from tui_debugger.demo.live_client import RecordedTraining
from tui_debugger.demo.recording import Recording

if TYPE_CHECKING:
    from tui_debugger.session.live import LiveSession

PACE: Final = 0.4
"""Seconds that a step of the recorded training takes: long enough to see that it runs."""


@contextmanager
def playing(
    missing: Callable[[str], None],
    *,
    source_map: Sequence[tuple[str, str]] = (),
    pace: float = PACE,
) -> Iterator[tuple[LiveSession, RecordedTraining]]:
    """A live session, and a training that has not been started; both end with the block.

    Args:
        missing: told of what was asked for and is not in the recording, from a thread of the training.
        source_map: see ``Session``.
        pace: seconds that a step takes.

    Raises:
        TdbgError: the demo dump cannot be unpacked, or no port of this machine can be had.
    """
    from tui_debugger.live.server import serve
    from tui_debugger.session.live import LiveSession
    from tui_debugger.sources.open import open_source

    with ExitStack() as stack:
        source = open_source(demo_dump())
        stack.callback(source.close)
        trainings = serve(port=0)
        stack.callback(trainings.close)
        training = RecordedTraining(Recording(source), trainings.address, pace=pace, missing=missing)
        stack.callback(training.close)
        session = LiveSession(trainings, source_map=source_map)
        stack.callback(session.close)  # lets the training go on, which needs its thread
        yield session, training
