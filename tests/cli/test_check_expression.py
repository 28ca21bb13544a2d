"""``tdbg check --watch "EX ..."``: on a real dump, from a file, as JSON, and refused with the place of the mistake."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.running import run
from tests.session.opened import checked, opened
from tui_debugger.model import Verdict

Capsys = pytest.CaptureFixture[str]
Dumps = Callable[[str], Path]
TEXT = "EX max > 3*std and 0 < zero_pct < 50 @ category=activation"


def test_a_hit_says_what_held_with_its_values(capsys: Capsys, dumps: Dumps) -> None:
    answer = run(capsys, "check", str(dumps("mindspore-2.0-mlp")), "--watch", TEXT)
    assert answer.code == 1
    assert "max > 3·std and 0 < zero_pct < 50 → " in answer.out


def test_json_has_every_quantity(capsys: Capsys, dumps: Dumps) -> None:
    dump = dumps("mindspore-2.0-mlp")
    answer = run(capsys, "check", str(dump), "--watch", TEXT, "--json")
    hits = answer.json["hits"]
    expected = [hit for hit in checked(opened(dump, TEXT)) if hit.verdict is Verdict.FINDING]
    assert len(hits) == len(expected) > 0
    for row, hit in zip(hits, expected, strict=True):
        (param,) = row["results"][0]["params"]
        assert param["value"] == "max > 3*std and 0 < zero_pct < 50"
        assert hit.stats is not None
        assert hit.stats.variance is not None
        assert param["quantities"] == {
            "max": hit.stats.maximum,
            "std": pytest.approx(hit.stats.variance**0.5),
            "zero_pct": hit.stats.zero_percentage,
        }


def test_a_file_of_watchpoints_holds_it(capsys: Capsys, dumps: Dumps, tmp_path: Path) -> None:
    file = tmp_path / "watch.toml"
    file.write_text(f"[[watchpoint]]\nwatch = '{TEXT}'\n")
    dump = str(dumps("mindspore-2.0-mlp"))
    with_file = run(capsys, "check", dump, "--watch-file", str(file))
    assert with_file.out.splitlines()[-1] == run(capsys, "check", dump, "--watch", TEXT).out.splitlines()[-1]


def test_a_mistake_is_shown_at_its_place(capsys: Capsys, dumps: Dumps) -> None:
    answer = run(capsys, "check", str(dumps("mindspore-2.0-mlp")), "--watch", "EX max > 6*st")
    assert answer.code == 2
    (at,) = [number for number, line in enumerate(answer.err.splitlines()) if line.strip() == "^"]
    line, caret = answer.err.splitlines()[at - 1 : at + 1]
    assert line[caret.index("^") :] == "st"


def test_a_frozen_weight_is_as_long_as_at_the_previous_step(capsys: Capsys, dumps: Dumps) -> None:
    """The first step is not comparable and no finding."""
    dump = dumps("mindspore-2.0-mlp")
    answer = run(capsys, "check", str(dump), "--watch", "EX norm == prev.norm @ re=^fc2.weight$")
    assert answer.code == 1
    assert "1 not comparable" in answer.out
    hits = checked(opened(dump, "EX norm == prev.norm @ re=^fc2.weight$"))
    assert [hit.key.step for hit in hits if hit.verdict is Verdict.FINDING] == [1, 2, 3, 4, 5]
