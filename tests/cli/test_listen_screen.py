"""``tdbg listen`` and ``tdbg demo --live`` without what a screen needs."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from tests.live.doubles import FakeTrainings
from tui_debugger.cli.listen import stay
from tui_debugger.cli.main import main
from tui_debugger.live.wire import Event, Phase
from tui_debugger.session.live import LiveSession


@pytest.fixture
def trainings() -> FakeTrainings:
    return FakeTrainings()


@pytest.fixture
def session(trainings: FakeTrainings) -> Iterator[LiveSession]:
    session = LiveSession(trainings)
    yield session
    session.close()


@pytest.mark.parametrize("words", [["listen", "--port", "0"], ["demo", "--live"]])
def test_the_screen_needs_a_terminal(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 2
    assert "the screen needs a terminal" in capsys.readouterr().err


def test_the_process_stays_until_the_last_training_of_mindspore_has_ended(
    trainings: FakeTrainings, session: LiveSession, capsys: pytest.CaptureFixture[str]
) -> None:
    training = trainings.begin(program="MindSpore 2.0.0")
    staying = threading.Thread(target=stay, args=(session,))
    staying.start()
    training.become(Phase.DONE, Event.DONE)
    staying.join(20)
    assert not staying.is_alive()
    assert "this process stays until its end" in capsys.readouterr().out


def test_nothing_is_waited_for_when_a_training_goes_on_by_itself(
    trainings: FakeTrainings, session: LiveSession
) -> None:
    trainings.begin()
    stay(session)
