"""What followed from some columns last is made anew as soon as one of them is another."""

from __future__ import annotations

import numpy as np

from tui_debugger.last_result import LastResult


def test_an_answer_is_made_once_for_the_same_columns() -> None:
    memory, made = LastResult[int](), list[int]()

    def ask(*columns: object) -> int:
        def make() -> int:
            made.append(len(made))
            return made[-1]

        return memory.of(*columns, make=make)

    rows = np.arange(5)
    assert [ask(rows, "a"), ask(rows.copy(), "a"), ask(rows, "a")] == [0, 0, 0]
    assert ask(rows[:4], "a") == 1  # another length
    assert ask(np.array([0, 1, 2, 4]), "a") == 2  # another number
    assert ask(np.array([0, 1, 2, 4], np.int32), "a") == 3  # another type
    assert ask(np.array([0, 1, 2, 4], np.int32), "b") == 4
    assert ask(np.array([0, 1, 2, 4], np.int32), None) == 5
    assert ask(None, np.array([0, 1, 2, 4], np.int32)) == 6
    assert ask(None) == 7
