"""``tdbg convert``: any dump as .npy files with an index."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from tui_debugger.cli.options import Commands, add_command, add_where, open_pairs, several_graphs
from tui_debugger.cli.output import Answer, left_out, note, outcome_of, unseen

if TYPE_CHECKING:
    from tui_debugger.model import ProgressFn
    from tui_debugger.session.convert import Converted

DESCRIPTION = """\
Writes a dump of any layout as .npy files that NumPy reads and tdbg opens again:

  DIR/rank_0/step_3/GRAPH/NODE.output.0.npy   the values
  DIR/rank_0/step_3/tdbg-index.csv            node, side, slot, dtype, shape,
                                              original file, line of source
  DIR/rank_0/tdbg-nodes.jsonl                 every node with what it was made
                                              from, its stack; the order of runs

bfloat16 and fp8, which .npy cannot name, are written as float32, which holds
them exactly; the index has their type. A tensor of which the dump has
statistics only is a row of the index without a file. Checks and searches for
origins say of DIR what they say of the dump. DIR appears when all is written or
not at all; nothing is written into the dump.
"""
EPILOG = """\
exit codes:
  0    written
  2    a tensor or a part of the dump could not be read (the others are written;
       the index says which), nothing is chosen, DIR holds something, the disk
       is too small, or a wrong argument
  130  interrupted: nothing is written

examples:
  tdbg convert DUMP -o arrays
  tdbg convert DUMP -o arrays --step 3 --rank 0 --filter 'conv1'
"""


def register(commands: Commands) -> None:
    parser = add_command(
        commands, "convert", "write a dump as .npy files with an index", DESCRIPTION, EPILOG, answer=_converted
    )
    parser.add_argument(
        "-o", "--output", required=True, type=Path, metavar="DIR", help="directory to write; must be new or empty"
    )
    add_where(parser)


def _converted(arguments: Namespace, progress: ProgressFn) -> Answer:
    from tui_debugger.session.convert import convert
    from tui_debugger.text.documents import row_of
    from tui_debugger.text.rows import key_row

    session, pairs = open_pairs(arguments, progress)
    written, graphs = convert(session, pairs, arguments.output, progress), several_graphs(session)
    return Answer(
        code=outcome_of(doubt=written.failures),
        missing=unseen(session),
        document=lambda: {
            "output": str(written.path),
            "tensors": written.tensors,
            "statistics_only": written.statistics,
            **row_of(written, "widened", "nbytes"),
            "left_out": [{**key_row(key), "error": why} for key, why in written.failures],
        },
        show=lambda _: _note(written, with_graph=graphs),
    )


def _note(written: Converted, *, with_graph: bool) -> None:
    from tui_debugger.text.numbers import plural, size

    note(f"{plural(written.tensors, 'tensor')} ({size(written.nbytes)}) written to {written.path}")
    if written.widened:
        note(f"{plural(written.widened, 'tensor')} of bfloat16 or fp8 written as float32")
    if written.statistics:
        note(f"{plural(written.statistics, 'tensor')} with statistics only: in the index, without a file")
    for line in left_out(written.failures, with_graph=with_graph):
        note(line)
