"""What a view gives to the clipboard and to files, pictures of the screen among them."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy.typing as npt

from tui_debugger.errors import TdbgError
from tui_debugger.model import ProgressFn
from tui_debugger.session.export_files import checked_target, fresh_text, save_npy
from tui_debugger.session.export_graph import write_table, write_text
from tui_debugger.text.clean import clean_lines
from tui_debugger.text.numbers import plural
from tui_debugger.text.tensors import shape_text
from tui_debugger.tui.dialogs.prompts import TextPrompt

if TYPE_CHECKING:
    from textual.app import App

    from tui_debugger.check.types import TensorRow
    from tui_debugger.model import TensorKey
    from tui_debugger.tui.views.view import View


Cells = Sequence[object]
TENSOR_HEADER = ("dtype", "shape", "nan", "inf", "min", "max")
"""The titles of ``tensor_fields``."""


@dataclass(frozen=True, slots=True)
class Extract:
    """The content of a view, in the forms that it has.

    Attributes:
        stem: file name without suffix, of safe characters only.
        text: everything the view says as plain text, not only what fits on the screen; control characters are gone.
        one: what is under the cursor, for the clipboard: a value, a name, a line.
        header, rows: a table for .csv; no header means that there is no table. Numbers stay numbers: they are written
            with all their digits. ``rows`` may be lazy.
        array: values for .npy; None where the view shows none.
    """

    stem: str
    text: str
    one: str = ""
    header: tuple[str, ...] = ()
    rows: Sequence[Cells] = ()
    array: Callable[[], npt.NDArray[Any]] | None = None


def stem_of(key: TensorKey, view: str = "") -> str:
    """A file name without suffix for what a view says about a tensor; without a view: for its values."""
    node = re.sub(r"[^A-Za-z0-9._-]+", "_", key.node.rpartition("/")[2] or key.node)[:80]
    number = f".round{key.round}" if key.round else ""
    return f"{node}.{key.side.label}{key.slot}.rank{key.rank}.step{key.step}{number}" + (f".{view}" if view else "")


def tensor_fields(row: TensorRow) -> tuple[object, ...]:
    """Type, shape and statistics of a tensor in a table for .csv."""
    meta, stats = row.meta, row.stats
    kind = (meta.dtype, shape_text(meta.shape)) if meta is not None else ("", "")
    return (*kind, *((stats.nan, stats.inf, stats.minimum, stats.maximum) if stats is not None else (None,) * 4))


LIMIT = 74_994
"""Bytes of UTF-8. Base64 makes 99,992 of them: terminals that keep a limit cut or drop sequences above 100,000."""


def put(app: App[object], text: str) -> str:
    """Hands text to the terminal, made safe to be pasted; returns what to say about it.

    No terminal answers, so that nobody can know whether the clipboard has it: what is said names the condition.

    Raises:
        TdbgError: it is too long for one sequence; nothing was copied.
    """
    safe = clean_lines(text)
    size = len(safe.encode())
    if size > LIMIT:
        raise TdbgError(
            f"{size:,} bytes are too much for the clipboard of a terminal (at most {LIMIT:,})",
            hint="export to a file instead",
        )
    app.copy_to_clipboard(safe)
    condition = "tmux needs set-clipboard on" if os.environ.get("TMUX") else "the terminal must allow OSC 52"
    return f"copied {plural(len(safe), 'character')} ({condition})"


_WEB_FONT = re.compile(r"@font-face\s*\{[^}]*\}\s*")
_TRIES = 100


def svg_of(app: App[object]) -> str:
    """What stands on the screen now. The font is the viewer's own monospaced one, not one from the network."""
    return _WEB_FONT.sub("", app.export_screenshot(title="tdbg"))


def save_picture(app: App[object], name: str, dump: Path) -> Path:
    """Writes ``tdbg-NAME-TIME.svg`` into the working directory; a second one of a second gets a number.

    Raises:
        TdbgError: the working directory lies inside the dump, or cannot be written to.
    """
    picture = svg_of(app)
    stem = f"tdbg-{name}-{datetime.now().astimezone():%Y%m%d-%H%M%S}"
    for number in range(1, _TRIES):
        path = Path.cwd() / f"{stem}{'' if number == 1 else f'-{number}'}.svg"
        if not path.exists():
            with fresh_text(path, dump) as file:
                file.write(picture)
            return path
    raise TdbgError("there are too many pictures of this second", where=f"{stem}.svg", hint="wait a second")


def check_path(text: str) -> str | None:
    """What is wrong with a path to write to."""
    if not text.strip():
        return "a file name is needed"
    try:
        path = Path(text.strip()).expanduser()
        if path.is_dir():
            return "this is a directory"
        if path.exists():
            return "this file exists; nothing is overwritten"
        return None if path.parent.is_dir() else "its directory does not exist"
    except (OSError, ValueError, RuntimeError) as error:  # a name that is too long, ~ of nobody
        return f"not a usable path: {error}"


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
        view.say(put(view.app, text), note=True)
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
    from tui_debugger.tui.main_screen import MainScreen

    screen = app.screen
    if isinstance(screen, MainScreen):
        return screen.current_pane
    return type(screen).__name__.removesuffix("Screen").removesuffix("View").lower()


def _dump_of(app: App[object]) -> Path:
    """The directory that nothing is written into: what the main screen has open, below whatever view."""
    from tui_debugger.tui.main_screen import MainScreen

    desk = next((screen for screen in app.screen_stack if isinstance(screen, MainScreen)), None)
    return Path(desk.session.info.path) if desk is not None and desk.session is not None else Path(os.devnull)
