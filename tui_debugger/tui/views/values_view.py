"""The base of the views that show values: they are outdated once the file of a tensor is another one."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from tui_debugger.errors import TdbgError
from tui_debugger.tui.views.view import RUN_CHANGED, View

if TYPE_CHECKING:
    from tui_debugger.model import TensorKey
    from tui_debugger.session import Session
    from tui_debugger.session.seen import FileState
    from tui_debugger.tui.views.focus import Focus
    from tui_debugger.tui.views.news import News
    from tui_debugger.tui.views.view import Host

Files = Mapping["TensorKey", "FileState | None"]


class ValuesView(View):
    """Asks for the files of its tensors, and for no others, when their step changed."""

    def __init__(self, host: Host, about: Focus) -> None:
        """No values are shown yet."""
        super().__init__(host, about)
        self.files: Files = {}

    def follow(self, news: News) -> None:
        """Files whether it is about these tensors that there is news: a step that grows leaves most as they are."""
        files = {key: file for key, file in self.files.items() if _may_concern(news, key)}
        if files and not self.outdated:
            session = self.host.session
            self.work_quietly(lambda _: rewritten(session, files), self._answered)

    def _answered(self, others: frozenset[TensorKey]) -> None:
        if others.intersection(self.shown_keys):
            self.mark_outdated(RUN_CHANGED)
        self.forget_tensors(others.difference(self.shown_keys))

    @property
    def shown_keys(self) -> Collection[TensorKey]:
        """The tensors that are shown; others of ``files`` are only kept."""
        return self.files.keys()

    def forget_tensors(self, keys: Collection[TensorKey]) -> None:
        """What is kept of these tensors is not what they are now."""


def files_of(session: Session, keys: Sequence[TensorKey], before: Files | None = None, *, anew: bool = False) -> Files:
    """How the files of tensors look, in a worker: before they are read, and after for those that had to be fetched.

    Args:
        session: the run.
        keys: the tensors.
        before: how they looked before they were read.
        anew: they are to be measured again, whatever is known of them.
    """
    for key in keys if anew else ():
        session.forget(key)
    known = before or {}
    return {key: known.get(key) or session.file_state(key) for key in keys}


def rewritten(session: Session, files: Files) -> frozenset[TensorKey]:
    """Those of some tensors that have other values now, in a worker."""
    return frozenset(key for key, file in files.items() if _is_other(session, key, file))


def _is_other(session: Session, key: TensorKey, file: FileState | None) -> bool:
    now = session.file_state(key)
    if now is not None or file is None or file.spec.format != "raw":
        return now != file
    try:  # a training went on: whether it holds the tensor anew, or has let it go
        return session.row_of(key).remote
    except TdbgError:
        return False


def _may_concern(news: News, key: TensorKey) -> bool:
    return (key.rank, key.step) in news.pairs or key.rank in news.ranks
