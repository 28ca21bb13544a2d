"""What leaves a view: to the clipboard, to files, as a picture."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from tui_debugger.errors import TdbgError
from tui_debugger.model import ProgressFn
from tui_debugger.session.exporting.files import checked_target, fresh_text, save_npy
from tui_debugger.session.exporting.sheets import write_table, write_text
from tui_debugger.tui.inspector import check_path
from tui_debugger.tui.screens.prompts import TextPrompt
from tui_debugger.tui.views import clipboard
from tui_debugger.tui.views.picture import save_picture, svg_of

if TYPE_CHECKING:
    from textual.app import App

    from tui_debugger.tui.views.extract import Extract
    from tui_debugger.tui.views.view import View

Say = Callable[[str], object]
_NOTHING = "there is nothing here yet"


def copy(view: View, *, everything: bool) -> None:
    """Copies what is under the cursor, or everything the view says, to the clipboard."""
    extract = view.extract()
    text = "" if extract is None else extract.text if everything else extract.one
    if not text:
        view.say(_NOTHING if extract is None else "nothing under the cursor; U copies everything", note=True)
        return
    try:
        view.say(clipboard.put(view.app, text), note=True)
    except TdbgError as error:
        view.say(f"{error.what}: e {error.hint}")


def export(view: View) -> None:
    """Asks for a path, whose suffix decides, and writes what the view shows there."""
    extract = view.extract()
    if extract is None:
        view.say(_NOTHING, note=True)
        return
    if view.working:
        view.say("something is still under way: wait for it, or stop it with Esc", note=True)
        return
    forms = suffixes(extract)
    dump = Path(view.host.session.info.path)

    def given(text: str | None) -> None:
        if text is not None:
            _write(view, extract, Path(text.strip()).expanduser(), dump)

    prompt = TextPrompt(
        "Export this view",
        extract.stem + forms[0],
        partial(_problem, forms, dump),
        note=f"the suffix decides: {_listed(forms)}; nothing is overwritten",
    )
    view.app.push_screen(prompt, given)


def screenshot(app: App[object], say: Say, failed: Say | None = None) -> None:
    """Writes a picture of the screen into the working directory.

    Args:
        app: what is running.
        say: shows where it was written.
        failed: shows why it was not; None shows that as ``say`` does.
    """
    try:
        path = save_picture(app, _name_of_screen(app), _dump_of(app))
    except TdbgError as error:
        (failed or say)(str(error))
    else:
        say(f"wrote {path}")


def suffixes(extract: Extract) -> tuple[str, ...]:
    """The forms of a view's content, the most telling one first."""
    has = {".csv": bool(extract.header), ".npy": extract.array is not None, ".txt": True, ".svg": True}
    return tuple(suffix for suffix, there in has.items() if there)


def _listed(forms: tuple[str, ...]) -> str:
    return f"{', '.join(forms[:-1])} or {forms[-1]}"


def _problem(forms: tuple[str, ...], dump: Path, text: str) -> str | None:
    """What is wrong with a path."""
    wrong = check_path(text)
    if wrong:
        return wrong
    path = Path(text.strip()).expanduser()
    if path.suffix.lower() not in forms:
        return f"this view can be written as {_listed(forms)}"
    try:
        checked_target(path, dump)
    except TdbgError as error:
        return error.what
    return None


def _write(view: View, extract: Extract, path: Path, dump: Path) -> None:
    suffix = path.suffix.lower()

    def work(job: Callable[[ProgressFn], Path]) -> None:
        view.work("writing", job, lambda written: view.say(f"wrote {written}", note=True))

    def draw() -> None:
        picture = svg_of(view.app)
        work(lambda _: _write_picture(picture, path, dump))

    array = extract.array
    if suffix == ".svg":
        view.say("")
        view.call_after_refresh(draw)  # the prompt and the last message have to be gone
    elif suffix == ".npy" and array is not None:
        work(lambda progress: save_npy(array(), path, dump, progress=progress))
    elif suffix == ".csv":
        work(lambda progress: write_table(extract.header, extract.rows, path, dump, progress))
    else:
        work(lambda _: write_text(extract.text.splitlines(), path, dump))


def _write_picture(picture: str, path: Path, dump: Path) -> Path:
    with fresh_text(path, dump) as file:
        file.write(picture)
    return path


def _name_of_screen(app: App[object]) -> str:
    """``distribution`` for a view, the pane's id for the main screen."""
    from tui_debugger.tui.desk import Desk

    screen = app.screen
    if isinstance(screen, Desk):
        return screen.current_pane
    return type(screen).__name__.removesuffix("Screen").removesuffix("View").lower()


def _dump_of(app: App[object]) -> Path:
    """The directory that nothing is written into: what the main screen has open, below whatever view."""
    from tui_debugger.tui.desk import Desk

    desk = next((screen for screen in app.screen_stack if isinstance(screen, Desk)), None)
    return Path(desk.session.info.path) if desk is not None and desk.session is not None else Path(os.devnull)
