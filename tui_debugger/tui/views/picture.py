"""Pictures of the screen: SVG files that need nothing from the network."""

from __future__ import annotations

import re
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from tui_debugger.errors import TdbgError
from tui_debugger.session.exporting.files import fresh_text

if TYPE_CHECKING:
    from textual.app import App

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
