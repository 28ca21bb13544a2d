"""MindInsight's older ``DumpParser``: a dump as .npy files, operators' files by source lines, exports."""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
from pathlib import Path

from tui_debugger.api.conditions import checked, numbers
from tui_debugger.api.dump_analyzer import DumpAnalyzer
from tui_debugger.errors import TdbgError
from tui_debugger.model import Side
from tui_debugger.sources.tensor_files.converted_nodes import NAME as NODES

__all__ = ["DumpParser", "OpPathManager"]

_FAILURES = "convert_failed_files_summary.txt"
_log = logging.getLogger("tui_debugger")

Files = dict[str, dict[int, dict[str, list[str]]]]
"""Paths by ``"rank_N"``, iteration, and ``"input"`` or ``"output"``."""


class OpPathManager:
    """The files of one operator."""

    def __init__(self) -> None:
        self._files: Files = {}

    @property
    def devices(self) -> list[int]:
        return [int(name.removeprefix("rank_")) for name in self._files]

    def add(self, rank: int, iteration: int, side: str, path: str) -> None:
        empty: dict[str, list[str]] = {"input": [], "output": []}
        paths = self._files.setdefault(f"rank_{rank}", {}).setdefault(iteration, empty)[side]
        if path not in paths:
            paths.append(path)

    def to_dict(self) -> Files:
        """Returns paths by ``"rank_N"``, iteration, and ``"input"`` or ``"output"``."""
        return self._files


class DumpParser(DumpAnalyzer):
    """A ``DumpAnalyzer`` for scripts that work on the files of a dump.

    ``convert_all_data_to_host`` writes a directory beside the dump, ``DUMP_DIR-host``, and never into it.

    Examples:
        >>> from tui_debugger.api.dump_parser import DumpParser
        >>> from tui_debugger.demo import demo_dump
        >>> files = DumpParser(demo_dump()).get_tensor_files("self.log", iterations=[3])
        >>> [(name.rpartition("/")[2], found.devices) for name, found in files.items()]
        [('ReduceSum-op380', [0]), ('Log-op381', [0])]
    """

    def __init__(self, dump_dir: str | os.PathLike[str]) -> None:
        super().__init__(dump_dir)
        given = Path(dump_dir).expanduser().resolve()
        self._host = given.with_name(f"{given.name}-host")

    def convert_all_data_to_host(self) -> list[str]:
        """Writes all tensors as .npy files into ``DUMP_DIR-host``, replacing an earlier conversion.

        Returns the failures, also written there: ``rank_0/step_3/NODE,output:0``, or paths of unreadable parts. Raises
        TdbgError when something else lies there, it cannot be written, or the disk is too small.
        """
        from tui_debugger.session.convert import convert

        session, target = self._run.session, self._host
        if target.exists() and not _is_conversion(target):
            raise TdbgError("this is no conversion", where=str(target), hint="move it away, or use tdbg convert -o DIR")
        pairs = session.pairs()
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{target.name}-") as beside:
            written = convert(session, pairs, Path(beside, "host"))
            failed = [
                f"rank_{key.rank}/step_{key.step}/{key.node},{key.side.label}put:{key.slot}"
                for key, _ in written.failures
            ]
            failed += [part.where for part in session.unreadable(pairs)]
            if failed:
                (written.path / _FAILURES).write_text("".join(f"{line}\n" for line in failed), "utf-8")
            if target.exists():
                shutil.rmtree(target)
            written.path.rename(target)
        _log.info("%d tensors written to %s", written.tensors, target)
        return failed

    def get_tensor_files(
        self,
        qs: str,
        use_regex: bool = False,
        rank_ids: list[int] | None = None,
        iterations: list[int] | None = None,
    ) -> dict[str, OpPathManager]:
        """Returns the files (converted, if possible) of the operators whose source lines contain ``qs``, by full name.

        ``qs`` is a part of path, line number or code, or a regular expression. None means all ranks or iterations.
        """
        found: dict[str, OpPathManager] = {}
        dump = DumpAnalyzer(self._host) if _is_conversion(self._host) else self
        for node in dump.select_nodes(checked(qs, "qs", str, "a str"), use_regex, "code_stack", rank_ids):
            run, rank, row = node.place
            files = found.setdefault(node.name, OpPathManager())
            flow = run.session.flow(rank)
            for step in numbers(iterations, "iterations", run.session.steps(rank)):
                table = flow.table(step)
                for index in table.of_node(row, every=True).tolist():
                    if flow.has_values(table, index):
                        side = f"{Side(int(table.side[index])).label}put"
                        files.add(rank, step, side, table.spec(index).path)
        if dump is not self:
            dump.close()
        return found

    def export_xlsx(self, output_dir: str | os.PathLike[str] | None = None) -> str:
        """See ``DumpAnalyzer.export_graphs``."""
        return self.export_graphs(output_dir)


def _is_conversion(path: Path) -> bool:
    """Tells whether a directory holds nothing but the output of ``convert_all_data_to_host``."""
    try:
        entries = [each for each in path.iterdir() if each.name != _FAILURES]
    except OSError:
        return False
    return bool(entries) and all(each.name.startswith("rank_") and (each / NODES).is_file() for each in entries)
