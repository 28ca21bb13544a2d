"""The report of what the hit list shows, written to a file from the main screen."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from tui_debugger.errors import CancelledError, TdbgError
from tui_debugger.session.export_files import checked_target, fresh_text

if TYPE_CHECKING:
    from tui_debugger.model import Progress, ProgressFn
    from tui_debugger.session import CheckResult
    from tui_debugger.tui.desk import Desk

LANE = "report"
NAME = "tdbg-report.md"


class Reporter:
    """Asks for a file name and writes the report there; nothing is checked again."""

    def __init__(self, desk: Desk) -> None:
        """For one screen."""
        self._desk = desk

    def handlers(self) -> dict[str, Callable[[], None]]:
        """Actions by id."""
        return {"report": self.ask}

    def ask(self) -> None:
        """Asks where to write it."""
        from tui_debugger.tui.dialogs.prompts import TextPrompt

        result = self._desk.state.result
        if result is None or not result.pairs or not result.watchpoints:
            self._desk.say("nothing was checked yet: r checks this step, R everything; w makes a watchpoint", bad=True)
            return
        dump = Path(self._desk.opened_session.info.path)

        def given(text: str | None) -> None:
            if text is not None:
                self._write(result, Path(text.strip()).expanduser(), dump)

        note = "Markdown, for a bug report; of what the hit list shows; nothing is overwritten"
        self._desk.app.push_screen(
            TextPrompt("Write a report", NAME, lambda text: problem(text, dump), note=note), given
        )

    def _write(self, result: CheckResult, path: Path, dump: Path) -> None:
        desk = self._desk
        session, typed = desk.opened_session, desk.run_title

        def work(progress: ProgressFn) -> Path:
            from tui_debugger.check.verdicts import judge
            from tui_debugger.diagnose.report import gather, markdown
            from tui_debugger.session.live import LiveSession

            found_by = "" if isinstance(session, LiveSession) else typed
            text = markdown(gather(session, found_by, result, judge(result), progress))
            with fresh_text(path, dump) as file:
                file.write(text)
            return path

        self._told(None)
        desk.ask_in(LANE, work, self._done, self._failed, self._told)

    def _told(self, progress: Progress | None) -> None:
        """Shows how far it is, and lets Esc stop it."""
        from tui_debugger.model import Progress as Snapshot

        self._desk.progress[LANE] = progress or Snapshot(0, 0, "report")
        self._desk.update_header()

    def _ended(self) -> None:
        self._desk.progress.pop(LANE, None)
        self._desk.update_header()

    def _done(self, path: Path) -> None:
        self._ended()
        self._desk.say(f"wrote {path}")

    def _failed(self, error: Exception) -> None:
        self._ended()
        if isinstance(error, CancelledError):
            self._desk.say("stopped: no report was written")
        else:
            self._desk.show_error(error)


def problem(text: str, dump: Path) -> str | None:
    """What is wrong with a path for the report."""
    from tui_debugger.tui.views.export import check_path

    wrong = check_path(text)
    if wrong:
        return wrong
    try:
        checked_target(Path(text.strip()), dump)
    except TdbgError as error:
        return error.what
    return None
