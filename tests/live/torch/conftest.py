"""Real trainings in processes of their own, and a real server that drives them.

These tests need PyTorch, which is an extra of its own (``pip install tui_debugger[torch-tests]``): without it every
module here is skipped, and says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.live.conftest import Happened
from tests.live.torch.driving import Driven
from tui_debugger.live.server import Server


@pytest.fixture
def train(server: Server, happened: Happened) -> Iterator[Callable[..., Driven]]:
    """Starts a training of ``programs`` that looks for ``server``, and waits until it stops before its first step."""
    started: list[Driven] = []

    def start(program: str, **options: object) -> Driven:
        started.append(Driven(server.address, happened, program, **options))
        return started[-1].arrived()

    yield start
    for each in started:
        each.end()
