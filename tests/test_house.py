"""What ``python -m tests.house`` counts, in a program of three rooms."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests import house

FILES = {
    "tui_debugger/__init__.py": "",
    "tui_debugger/shelf.py": '"""A shelf."""\n\nWIDTH = 3  # hands\n_DEPTH = 1\n',
    "tui_debugger/kitchen/__init__.py": "from tui_debugger.kitchen.stove import Stove as Stove\n",
    "tui_debugger/kitchen/stove.py": (
        'class Stove:\n    """Cooks.\n\n    Slowly.\n    """\n\n    heat = f"{1} of {2}"\n\n\nclass _Pan:\n    pass\n'
    ),
    "tui_debugger/cellar/__init__.py": '__all__ = ["open_door"]\n\n\ndef open_door(): ...\ndef lamp(): ...\n',
    "tui_debugger/cellar/shelves.py": "class Pan:\n    # Rusty.\n    class Stove: ...\n",
    "tests/pans.py": "from tui_debugger.kitchen.stove import _Pan\n",
    "tests/test_doors.py": (
        "import tui_debugger.shelf\nfrom tui_debugger.cellar import open_door\nfrom tui_debugger.kitchen import Stove\n"
    ),
    "tests/test_names.py": "from tui_debugger.cellar import lamp\nfrom tui_debugger.shelf import WIDTH, _DEPTH\n",
    "tests/kitchen/test_pan.py": (
        "from tui_debugger.cellar import shelves\n\ndef test_pan(monkeypatch):\n"
        "    from tui_debugger.kitchen.stove import _Pan\n"
        '    monkeypatch.setattr("tui_debugger.kitchen.stove.Stove.heat", 1)\n'
    ),
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        tmp_path.joinpath(name).parent.mkdir(parents=True, exist_ok=True)
        tmp_path.joinpath(name).write_text(text)
    return tmp_path


def test_every_room_is_counted(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    house.main([], root)
    assert capsys.readouterr().out.splitlines() == [
        "          files  tokens  code  a line  docstrings  comments  homonyms  below  names",
        "(top)         2       7     2     3.5           1         1         0      1      1",
        "cellar/       2      24     5     4.8           0         1         1      2      2",
        "kitchen/      2      21     5     4.2           4         0         1      1      2",
        "total         6      52    12     4.3           5         2         1      2      5",
        "tests/        4      66    10     6.6           0         0",
    ]


def test_the_names_behind_the_numbers(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    house.main(["--json"], root)
    document = json.loads(capsys.readouterr().out)
    assert document["homonyms"] == {"Pan": ["tui_debugger/cellar/shelves.py", "tui_debugger/kitchen/stove.py"]}
    assert document["rooms"]["total"]["tokens"] == 52
    assert document["below"] == {
        "tests/kitchen/test_pan.py": [
            "tui_debugger.cellar.shelves",
            "tui_debugger.kitchen.stove.Stove",
            "tui_debugger.kitchen.stove._Pan",
        ],
        "tests/test_names.py": ["tui_debugger.cellar.lamp", "tui_debugger.shelf._DEPTH"],
    }


def test_what_changed_since_a_revision(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    git = ["git", "-C", str(root), "-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"]
    for words in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "first"]):
        subprocess.run([*git, *words], check=True)
    root.joinpath("tui_debugger/cellar/shelves.py").write_text("class Shelves:\n    pass\n")
    root.joinpath("tui_debugger/attic").mkdir()
    root.joinpath("tui_debugger/attic/__init__.py").write_text("")
    house.main(["--against", "HEAD"], root)
    assert capsys.readouterr().out.splitlines() == [
        "          files   tokens  code     a line  docstrings  comments  homonyms  below  names",
        "attic/    0 → 1        0     0          0           0         0         0      0      0",
        "cellar/       2  24 → 21     5  4.8 → 4.2           0     1 → 0     1 → 0      2      2",
        "kitchen/      2       21     5        4.2           4         0     1 → 0      1      2",
        "total     6 → 7  52 → 49    12  4.3 → 4.1           5     2 → 1     1 → 0      2      5",
    ]
    house.main(["--against", "HEAD", "--json"], root)
    document = json.loads(capsys.readouterr().out)
    assert [document[when]["rooms"]["total"]["tokens"] for when in ("before", "after")] == [52, 49]


def test_a_revision_that_is_not_there(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        house.main(["--against", "none"], root)
    assert "git cannot read none" in capsys.readouterr().err


def test_an_f_string_is_one_token_with_every_version_of_python() -> None:
    since_3_12 = ["NAME", "OP", "FSTRING_START", "OP", "FSTRING_START", "FSTRING_END", "OP", "FSTRING_END", "NEWLINE"]
    assert house.counted(since_3_12) == house.counted(["NAME", "OP", "STRING", "NEWLINE"]) == 3
