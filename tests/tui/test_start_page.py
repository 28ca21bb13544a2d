"""The start page: what it lists while it searches, where its keys lead, and what it remembers."""

from __future__ import annotations

import asyncio
import os
import shutil
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot

from tests.hostile import EVIL, EVIL_FILE, UNSAFE, write_hostile_dump
from tests.linked import linked
from tests.sources.writer import write_dump
from tests.tui.driver import Person
from tests.tui.sizes import every_size
from tests.unprivileged import forbidden, unprivileged
from tui_debugger.config import Config, parse
from tui_debugger.model import Progress, ProgressFn
from tui_debugger.session import Session
from tui_debugger.session.dumps import LastVerdict, RecentDumps
from tui_debugger.sources.registry import open_source
from tui_debugger.tui.actions import START_ACTIONS, start_actions
from tui_debugger.tui.app import StartSettings, TdbgApp
from tui_debugger.tui.dialogs.modal import InputLine
from tui_debugger.tui.settings import apply
from tui_debugger.tui.start_page import StartPage

FOUND = LastVerdict("Begins at step 3: Log-op381, -Inf 1 of 4", "finding", 1, 0.0)
CLEAN = LastVerdict("Clean: 30 tensors of steps 0–2 looked at", "clean", 0, 0.0)


class Page(Person):
    """A person in front of the start page."""

    def __init__(self, app: TdbgApp, pilot: Pilot[int]) -> None:
        super().__init__(app, pilot)
        assert app.start_page is not None
        self.page: StartPage = app.start_page

    @property
    def names(self) -> list[str]:
        """The last part of every path in the list."""
        return [Path(each.path).name for each in self.page.dumps_pane._shown]

    @property
    def row(self) -> str:
        current = self.page.dumps_pane.current
        return Path(current.path).name if current is not None else ""

    async def looked(self) -> None:
        """Waits until the search is over and its last answer is shown."""
        page = self.page
        await self.until(lambda: page.overview is not None and page.overview.ended and not page.work.busy("dumps"))

    async def press(self, *keys: str) -> None:
        await super().press(*keys)
        await self.until(
            lambda: (
                not any(lane.busy or lane.on_the_way for name, lane in self.page.work._lanes.items() if name != "dumps")
            )
        )

    async def opened(self) -> None:
        await self.until(lambda: self.app.main.session is not None)
        main = self.app.main
        await self.until(lambda: not main.inspector.pending and main.work.idle)


def opening(path: Path) -> Callable[[ProgressFn], Session]:
    def open_session(progress: ProgressFn) -> Session:
        session = Session(open_source(path))
        session.open(progress)
        return session

    return open_session


@asynccontextmanager
async def started(
    directory: Path, *, size: tuple[int, int] = (120, 40), with_recent: bool = True, look: bool = True, **more: Any
) -> AsyncIterator[Page]:
    app = TdbgApp(StartSettings(directory, opening, with_recent=with_recent), recommended=True, **more)
    async with app.run_test(size=size) as pilot:
        page = Page(app, pilot)
        if look:
            await page.looked()
        yield page


@pytest.fixture
def runs(tmp_path: Path, dumps: Callable[[str], Path]) -> Path:
    """A directory with two dumps below it, one of which was opened before, and one elsewhere that was."""
    write_dump(tmp_path / "runs/healthy")
    linked(dumps("mindspore-2.0-nan"), tmp_path / "runs/sick/nan")
    write_dump(tmp_path / "elsewhere", ranks=(0, 1))
    recent = RecentDumps()
    recent.opened(str(tmp_path / "elsewhere"))
    recent.judged(str(tmp_path / "elsewhere"), replace(CLEAN, when=time.time()))
    recent.opened(str(tmp_path / "runs/sick/nan"))
    recent.judged(str(tmp_path / "runs/sick/nan"), replace(FOUND, when=time.time()))
    return tmp_path / "runs"


# -- what one sees -------------------------------------------------------------------------------------


@every_size
async def test_recent_dumps_and_those_below_with_what_is_known(runs: Path, size: tuple[int, int]) -> None:
    async with started(runs, size=size) as page:
        assert page.names == ["nan", "elsewhere", "healthy"]
        lines = page.text.splitlines()
        assert lines[0].startswith(" tdbg  dumps below /")
        assert "/runs " in lines[0]
        assert lines[0].endswith("tdbg listen waits for training")
        assert lines[1].startswith(" 2 dumps found, 4 directories looked at")
        assert lines[1].endswith("2 opened before")
        (nan,) = [line for line in lines if line.startswith("▌")]
        assert "sick/nan" in nan
        assert "✗ Begins at step 3" in nan
        assert " 0–5     1 " in nan + " "
        (healthy,) = [line for line in lines if line.startswith(" healthy")]
        assert " –  " in healthy
        assert " 0–2     1" in healthy
        assert "Begins at step 3: Log-op381, -Inf 1 of 4 (exit code 1, just now" in lines[-2]
        for word in ("Enter Open", "/ Search", "p Open path", "r Look again", "d Remove", "q Quit"):
            assert word in lines[-1]
        if size[0] >= 120:
            assert "MindSpore 2.0.0" in nan
            assert "now" in nan
        await page.press("end")
        assert "MindSpore 2.10.0" in page.text.splitlines()[-2]


async def test_the_first_frame_waits_for_nothing(runs: Path) -> None:
    async with started(runs, look=False) as page:
        assert "Dumps" in page.text
        assert "looking" in page.text
        await page.looked()


async def test_without_dumps_it_says_what_else_there_is(tmp_path: Path) -> None:
    async with started(tmp_path) as page:
        assert "no dump found; tdbg listen waits for a training process, tdbg demo shows an example" in page.text
        await page.press("enter", "d")
        assert page.app.screen is page.page


async def test_what_was_not_looked_at_is_said(runs: Path) -> None:
    with forbidden(runs / "sick"):

        async def look() -> str:
            async with started(runs, with_recent=False) as page:
                assert page.names == ["healthy"]
                return page.text

        assert "! sick cannot be listed: permission denied" in unprivileged(lambda: asyncio.run(look()))


async def test_a_dump_that_is_gone_is_dim_and_can_be_forgotten(runs: Path) -> None:
    shutil.rmtree(runs / "sick/nan")
    async with started(runs) as page:
        assert page.names == ["nan", "elsewhere", "healthy"]
        (row,) = [line for line in page.text.splitlines() if line.startswith("▌")]
        assert " gone " in row
        await page.press("enter")
        assert "No such file or directory" in page.page.footer.notice
        await page.press("d")
        assert page.names == ["elsewhere", "healthy"]
    assert [Path(each.path).name for each in RecentDumps().dumps()] == ["elsewhere"]


async def test_a_verdict_of_before_says_so(runs: Path) -> None:
    RecentDumps().judged(str(runs / "healthy"), LastVerdict("Clean", "clean", 0, 1e9))
    async with started(runs) as page:
        await page.press("end")
        await page.until(lambda: page.row == "healthy" or page.page.dumps_pane.table.action_cursor_up())
        assert "more was written since" in page.text.splitlines()[-2]


# -- where one gets from there -------------------------------------------------------------------------


@pytest.mark.turns("size")
@every_size
async def test_enter_opens_the_dump_and_q_leaves_the_program(runs: Path, size: tuple[int, int]) -> None:
    judged: list[tuple[str, str]] = []
    async with started(runs, size=size, judged=lambda path, said: judged.append((path, str(said)))) as page:
        await page.pilot.press("enter")
        await page.opened()
        assert page.app.screen is page.app.main
        await page.until(lambda: "Begins at step 3" in page.text)
        await page.pilot.press("n", "o")
        await page.until(lambda: type(page.app.screen).__name__ == "OriginView" and "self.log(" in page.text)
        await page.pilot.press("escape", "q")  # once the path is there: Esc would only stop the search for it
        await page.until(lambda: page.app.return_code is not None)
    assert page.app.return_code == 0
    ((path, said),) = judged
    assert path == str(runs / "sick/nan")
    assert said.startswith("Begins at step 3: Log-op381, -Inf 1 of 4")


async def test_a_path_can_be_typed(runs: Path) -> None:
    async with started(runs) as page:
        await page.press("p")
        assert "Open which path?" in page.text
        page.app.screen.query_one(InputLine).value = "healthy/rank_0"
        await page.pilot.press("enter")
        await page.opened()
        session = page.app.main.session
        assert session is not None
        assert session.info.path == str(runs / "healthy")


async def test_a_path_with_several_dumps_is_listed(runs: Path) -> None:
    write_dump(runs / "more/one", steps=(0,))
    write_dump(runs / "more/two", steps=(0,))
    async with started(runs) as page:
        await page.press("p")
        page.app.screen.query_one(InputLine).value = "more"
        await page.press("enter")
        await page.until(lambda: page.names == ["one", "two"])
        assert str(runs / "more")[-20:] in page.text.splitlines()[0]


@pytest.mark.parametrize(("typed", "said"), [("nothing", "No such file or directory"), ("empty", "No dump found")])
async def test_a_wrong_path_is_answered_on_the_page(runs: Path, typed: str, said: str) -> None:
    (runs / "empty").mkdir()
    async with started(runs) as page:
        await page.press("p")
        page.app.screen.query_one(InputLine).value = typed
        await page.press("enter")
        await page.until(lambda: said in page.page.footer.notice)
        assert page.app.screen is page.page


async def test_escape_stops_the_search_then_ends_that_in_the_list_then_leaves(
    runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def slow(search: Any, progress: ProgressFn) -> Any:
        search.looked = 1
        yield runs / "healthy"
        while True:
            progress(Progress(7, 0, "7 directories looked at"))
            threading.Event().wait(0.001)  # other threads have their turn, too

    monkeypatch.setattr("tui_debugger.sources.search.DumpSearch.dumps", slow)
    async with started(runs, look=False, with_recent=False) as page:
        await page.until(lambda: page.names == ["healthy"])
        await page.until(lambda: "▶ looking, 7 directories looked at  Esc stops" in page.text)
        await page.press("escape")
        await page.looked()
        assert "! stopped: not everything was looked at" in page.text
        await page.press("slash", "h", "enter", "escape")
        assert page.app.return_code is None
        await page.pilot.press("escape")
        await page.until(lambda: page.app.return_code == 0)


async def test_a_search_keeps_what_matches_and_goes_back(runs: Path) -> None:
    async with started(runs) as page:
        await page.press("slash", *"wher")
        assert page.names == ["elsewhere"]
        assert "1 of 1" in page.text
        await page.press("escape")
        assert page.names == ["nan", "elsewhere", "healthy"]
        assert page.row == "nan"
        await page.press("slash", "tilde", "left_parenthesis")
        assert page.page.footer.notice.startswith("✗ ")


async def test_the_cursor_stays_on_its_dump_while_others_appear(runs: Path) -> None:
    async with started(runs) as page:
        await page.press("end")
        assert page.row == "healthy"
        write_dump(runs / "a_new_one", steps=(0,))
        await page.press("r")
        await page.looked()
        await page.until(lambda: "a_new_one" in page.names)
        assert page.row == "healthy"


async def test_keys_can_be_chosen(runs: Path) -> None:
    try:
        config = parse(b'[keys]\nlook_for_dumps = "f5"\nopen_path = "o"\n', Path("config.toml"))
        async with started(runs, config=config) as page:
            assert "F5 Look again" in page.text
            await page.press("o")
            assert "Open which path?" in page.text
    finally:
        apply(Config())


# -- every key -----------------------------------------------------------------------------------------

EFFECTS: dict[str, Callable[[Page], bool]] = {
    "open_path": lambda page: "Open which path?" in page.text,
    "look_for_dumps": lambda page: page.page.work._lanes["dumps"].newest == 2,
    "forget_dump": lambda page: "forgotten: " in page.page.footer.notice and "1 opened before" in page.text,
    "leave_start": lambda page: page.app.return_code == 0,
    "search": lambda page: "search (~ for" in page.text,
    "redraw": lambda page: page.names == ["nan", "elsewhere", "healthy"],
    "help": lambda page: "Help: keys" in page.text,
    "quit": lambda page: page.app.return_code == 0,
}
NAMES = {"/": "slash", "?": "question_mark"}


def test_the_table_covers_every_action() -> None:
    assert set(EFFECTS) == {action.id for action in start_actions()}
    assert len(START_ACTIONS) == 4


@pytest.mark.parametrize(("action", "key"), [(each, key) for each in start_actions() for key in each.keys])
async def test_every_key(runs: Path, action: Any, key: str) -> None:
    async with started(runs) as page:
        before = page.text
        await page.pilot.press(NAMES.get(key, key))
        await page.until(lambda: EFFECTS[action.id](page))
        assert action.id == "redraw" or page.app.return_code is not None or page.text != before or key == "r"


@pytest.mark.parametrize(
    ("key", "row"), [("down", 1), ("j", 1), ("end", 2), ("G", 2), ("pagedown", 2), ("up", 0), ("home", 0)]
)
async def test_keys_that_move(runs: Path, key: str, row: int) -> None:
    async with started(runs) as page:
        await page.press(key)
        assert page.page.dumps_pane.table.cursor_row == row


async def test_the_footer_can_be_clicked(runs: Path) -> None:
    async with started(runs) as page:
        at = page.text.splitlines()[-1].index("p Open path")
        await page.pilot.click(offset=(at, 39))
        await page.until(lambda: "Open which path?" in page.text)


# -- names that do harm --------------------------------------------------------------------------------


@pytest.mark.turns("size")
@every_size
async def test_no_name_commands_the_terminal(tmp_path: Path, size: tuple[int, int]) -> None:
    write_hostile_dump(tmp_path / "runs")
    recent = RecentDumps()
    recent.judged(str(tmp_path / f"gone{EVIL_FILE}"), LastVerdict(f"Begins at {EVIL}", "finding", 1, 1e9))
    recent.judged("/" + "long/" * 800 + "end", LastVerdict("x" * 400, EVIL, 1, 1e9))
    recent.judged(str(tmp_path / "runs/aGFjaw==\x07"), CLEAN)  # short enough to be shown as a whole
    (tmp_path / "runs" / os.fsdecode(b"no utf-8 \xff\xfe")).mkdir()
    async with started(tmp_path / "runs", size=size) as page:
        assert len(page.names) == 4
        met = 0
        for key in ("home", "down", "down", "down", "right", "right", "d", "enter", "slash"):
            await page.press(key)
            text = page.text.replace("\n", "")
            assert not UNSAFE.search(text), ascii(UNSAFE.search(text))
            assert all(len(line) <= size[0] for line in page.text.splitlines())
            met += "aGFjaw==" in text
        assert met, "the attack was never met"


async def test_a_search_that_breaks_says_so_and_the_page_goes_on(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> Any:
        yield runs / "healthy"
        raise ZeroDivisionError("a mistake")

    monkeypatch.setattr("tui_debugger.sources.search.DumpSearch.dumps", broken)
    async with started(runs, with_recent=False) as page:
        assert "ZeroDivisionError: a mistake" in page.text
        await page.press("escape")
        assert "! the search ended with an error" in page.text
        await page.press("p")
        assert "Open which path?" in page.text
