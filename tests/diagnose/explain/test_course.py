"""How a quantity was one step earlier, in words: only what has a sign has a magnitude."""

from __future__ import annotations

import pytest

from tui_debugger.diagnose.explain.evidence import change_words


@pytest.mark.parametrize(
    ("earlier", "now", "share", "words"),
    [
        (35.0, 60.25, True, "it grew to 1.7 times that"),
        (60.0, 30.0, True, "it shrank by a factor of 2"),
        (0.5, 0.5, False, "unchanged"),
        (1.0, 1.004, False, "almost the same (+0.4 %)"),
        (0.25, 1.0, False, "it grew to 4 times that"),
        (-0.25, -1.0, False, "its magnitude grew to 4 times that"),
        (-1.0, -0.25, False, "its magnitude shrank by a factor of 4"),
        (0.0, 12.5, True, "it rose since"),
        (1.0, -1.0, False, "it fell since"),
    ],
)
def test_how_it_changed(earlier: float, now: float, words: str, *, share: bool) -> None:
    assert change_words(earlier, now, share=share) == words
