"""``tdbg diff PATH NODE[:slot]`` compares a tensor with another one; ``tdbg diff A B``: see ``diff_runs``."""

from __future__ import annotations

import argparse
import math
from argparse import Namespace
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from tui_debugger.cli.options import (
    Commands,
    add_command,
    add_comparison,
    add_where,
    add_work,
    at_least_zero,
    chosen,
    flag,
    is_whole,
    open_session,
    refuse_comparison,
    several_graphs,
    whole,
)
from tui_debugger.cli.output import Answer, Unseen, from_on, unseen
from tui_debugger.errors import TdbgError

if TYPE_CHECKING:
    from tui_debugger.diagnose.compare import ComparedTensor, Comparer
    from tui_debugger.diagnose.run import DiagnosedRun
    from tui_debugger.model import ProgressFn, TensorKey
    from tui_debugger.session import Session
    from tui_debugger.session.naming import FoundNode
    from tui_debugger.stats.compare_pairs import Boundary

DESCRIPTION = """\
Compares a tensor with itself at the previous step, or with what --with names:
another step, rank, tensor, run or a file (.npy; a tensor of .npz, .pt or
.safetensors: FILE:NAME). Errors are over the elements that are finite on both
sides; d is here - there, relative errors are parts of there.

With a second run in place of NODE it compares the runs: which nodes are the
same, where the first real difference begins, and what only passes it on. What
rounding makes is no difference, whatever the kernels and the precision.
"""
EPILOG = """\
Without a tolerance only equal elements are equal; NaN equals NaN (where every
element is NaN on both sides nothing is compared), an infinity one of its sign.
An element is also equal when |d| <= atol + rtol * |there|, or when |d| is at
most PCT percent of the greatest |d| of the whole tensor.

Of two runs a node is named when its inputs agree and its output does not: when
it makes more than 3 times what its inputs and the coarser type explain. With a
tolerance, elements outside of it count instead.

exit codes:
  0    equal within the tolerance; runs: the same within what is expected
  1    different
  2    cannot judge: a tensor that was not dumped or cannot be read, other
       shapes, NaN everywhere on both sides, a wrong argument
  130  interrupted

examples:
  tdbg diff DUMP head.weight --step 3
  tdbg diff DUMP Div-op385:0 --step 3 --with step=0 --rtol 1e-5 --atol 1e-8
  tdbg diff DUMP Log-op381:in0 --with tensor=ReLU-op380:0 --json
  tdbg diff DUMP head.weight --with rank=1
  tdbg diff DUMP head.weight --with golden/head.weight.npy --top 5
  tdbg diff DUMP head.weight --with model.safetensors:head.weight
  tdbg diff DUMP head.weight --with /runs/before --with step=4
  tdbg diff /runs/gpu /runs/npu
  tdbg diff OLD NEW --map-name 's/^encoder/model.encoder/' --markdown diff.md
"""
TOP = 20


def register(commands: Commands) -> None:
    parser = add_command(
        commands,
        "diff",
        "compare a tensor with another one",
        DESCRIPTION,
        EPILOG,
        answer=_compared,
        judges=True,
    )
    parser.add_argument(
        "node",
        metavar="B|NODE[:slot]",
        help="another run, or a node as for tdbg show; without a slot the node's only output",
    )
    parser.add_argument(
        "--with",
        dest="other",
        action="append",
        default=[],
        metavar="WHAT",
        help="step=N, rank=N, tensor=NODE[:slot], a file of tensors (FILE[:NAME]), or the directory of another run "
        "(may be repeated: what is not named stays as it is; default: the previous step)",
    )
    parser.add_argument("--rtol", type=at_least_zero(math.inf), default=0.0, metavar="X", help="relative tolerance")
    parser.add_argument("--atol", type=at_least_zero(math.inf), default=0.0, metavar="X", help="absolute tolerance")
    parser.add_argument(
        "--tolerance",
        type=at_least_zero(100),
        default=0.0,
        metavar="PCT",
        help="0 to 100: percent of the greatest difference up to which elements count as equal",
    )
    flag(
        parser,
        "--reshape",
        "compare tensors of different shapes: as many elements in C order, or one stretched over the other",
    )
    parser.add_argument(
        "--top",
        type=whole("a number of elements up to 100000", 0, 100_000),
        default=TOP,
        metavar="K",
        help=f"how many of the largest differences are listed (default: {TOP}); of two runs: 0 for all",
    )
    parser.add_argument(
        "--by", choices=("abs", "rel", "ulp"), default="abs", help="what makes a difference large (default: abs)"
    )
    _add_runs(parser)
    add_where(
        parser,
        rank="one rank (default: the first; of two runs: all)",
        step="one step (default: the last with the tensor; of two runs: all)",
    )
    add_work(parser)


def _add_runs(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("two runs")
    add_comparison(group)
    flag(group, "--csv", "a row for every pair of nodes on stdout")
    group.add_argument("--xlsx", type=Path, metavar="FILE", help="the same as a workbook")
    group.add_argument("--markdown", type=Path, metavar="FILE", help="a report for an issue or a chat")


def _are_runs(arguments: Namespace) -> bool:
    """Tells whether the second argument is a run: an existing path that is no node's name.

    Raises TdbgError if it looks like a path and there is none, or an option belongs to the other kind of comparison.
    """
    text = arguments.node
    if not text:  # of a variable that is not set; else it would be the working directory
        raise TdbgError("the second argument is empty", where="''", hint="name a run, or a node of the first one")
    try:
        exists = Path(text).exists()
    except (OSError, ValueError):
        exists = False
    if not exists and text.startswith(("./", "../", "~")):
        raise TdbgError("no such file or directory", where=text, hint="name a run, or a node of the first one")
    if not exists:
        hint = "name a second run in place of the node"
        refuse_comparison(arguments, ("csv", "xlsx", "markdown"), where=text, hint=hint)
    if exists and (arguments.other or arguments.tolerance or arguments.reshape):
        raise TdbgError(
            "--with, --tolerance and --reshape are for one tensor",
            where=text,
            hint="leave them out, or name a tensor in place of the second run",
        )
    return exists


def _compared(arguments: Namespace, progress: ProgressFn) -> Answer:
    if _are_runs(arguments):
        from tui_debugger.cli import diff_runs

        return diff_runs.compared(arguments, progress)
    from tui_debugger.cli.diff_report import ComparedTensors
    from tui_debugger.diagnose.compare import Comparer
    from tui_debugger.stats.compare_pairs import Boundary

    session = open_session(arguments, progress)
    comparer = Comparer(session)
    arguments.at_exit.callback(comparer.close)
    key, found = _tensor(session, arguments, progress)
    other = _other(session, comparer, key, found, arguments, progress)
    couple = comparer.couple(key, other, progress, reshape=arguments.reshape)
    tolerance: Boundary = Boundary(arguments.rtol, arguments.atol, arguments.tolerance)
    differences, hint = couple.compare(tolerance, arguments.top, progress)
    missing = _of_rank(unseen(session, from_on(session, [(key.rank, key.step)]), graph=False), key.rank)
    if other.path and other.key is not None:
        there = comparer.run_of(other, progress).unreadable([(other.key.rank, other.key.step)], graph=False)
        missing = Unseen((*missing.parts, *there))
    return ComparedTensors(couple, differences, hint, arguments.by, several_graphs(session)).answer(missing)


def _of_rank(missing: Unseen, rank: int) -> Unseen:
    """Leaves out ranks above the compared one: only a lower rank would have been taken in its place."""
    return Unseen(tuple(part for part in missing.parts if part.rank is None or part.rank <= rank))


def _tensor(session: Session, arguments: Namespace, progress: ProgressFn) -> tuple[TensorKey, FoundNode]:
    """Finds the asked tensor. Raises TdbgError for several ranks or steps, no such node or slot, or several tensors."""
    from tui_debugger.session.naming import find_in

    ranks = chosen(arguments.rank, session.ranks(), "rank")
    if arguments.rank is None:
        ranks = ranks[:1]
    rank = _one(ranks, "rank")
    for each in session.ranks():  # what of a rank cannot be listed is said, too
        session.nodes(each, progress)
    found = find_in(session, [rank], arguments.node, progress)
    if arguments.step is not None:
        step = _one(chosen(arguments.step, session.steps(rank), "step"), "step")
    else:
        step = _last_step(session, rank, found)
    return _key_at(session, rank, step, found), found


def _one(numbers: list[int], word: str) -> int:
    if not numbers:
        raise TdbgError(f"no {word} was dumped", where=f"--{word}", hint="`tdbg ls --steps` lists what ran")
    if len(numbers) > 1:
        listed = ", ".join(map(str, numbers[:10]))
        raise TdbgError(
            f"one {word} can be compared at a time", where=f"--{word} {listed}", hint=f"choose one, and --with {word}=N"
        )
    return numbers[0]


def _last_step(session: Session, rank: int, found: FoundNode) -> int:
    """The last step with a tensor of the node; without such a step the last dumped step."""
    from tui_debugger.diagnose.compare import NEAREST

    steps = session.steps(rank)
    flow = session.flow(rank)
    recent = [step for step in steps[-NEAREST:] if len(flow.table(step).of_node(found.rows[rank]))]
    return recent[-1] if recent else _one(list(steps[-1:]), "step")


def _key_at(session: DiagnosedRun, rank: int, step: int, found: FoundNode) -> TensorKey:
    """The asked tensor of a node. Raises TdbgError if there is none, or several."""
    from tui_debugger.session.naming import no_such_tensor

    row = session.nodes(rank).find(found.node, found.graph)
    rows = session.tensor_rows(rank, step, row, found.asked.round) if row >= 0 else ()
    meant = found.meant(rows)
    if len(meant) != 1:
        raise no_such_tensor(found, rows, "several tensors may be meant" if meant else "")
    return meant[0].key


def _other(  # noqa: PLR0917 - the tensor, the run that it is of, and what was asked
    session: Session,
    comparer: Comparer,
    key: TensorKey,
    found: FoundNode,
    arguments: Namespace,
    progress: ProgressFn,
) -> ComparedTensor:
    """Returns the tensor that ``--with`` names; without ``--with`` the same tensor at the step before."""
    from tui_debugger.diagnose.compare import ComparedTensor, is_file
    from tui_debugger.session.naming import find_in

    if not arguments.other:
        return comparer.previous(key)
    named = _named(arguments.other)
    file = named.get("file")
    if file is not None and (is_file(file) or not Path(file).is_dir()):
        if len(named) > 1:
            raise TdbgError("a file has no steps, ranks and nodes", where=f"--with {file}", hint="leave the others out")
        return ComparedTensor(path=file)
    run = comparer.run_of(ComparedTensor(key, file or ""), progress)
    rank = _whole(named["rank"], "rank") if "rank" in named else key.rank
    if rank not in run.around.ranks():
        there = ", ".join(map(str, run.around.ranks()))
        raise TdbgError(f"rank {rank} is not in this dump", where=f"--with rank={rank}", hint=f"there is rank {there}")
    if "tensor" in named:
        found = find_in(run, [rank], named["tensor"], progress)
    if "step" not in named and "tensor" not in named:
        return ComparedTensor(replace(key, rank=rank), file or "")
    step = _whole(named["step"], "step") if "step" in named else _asked_step(session, key, arguments)
    if step not in run.around.steps(rank) or run.nodes(rank).find(found.node, found.graph) < 0:
        return ComparedTensor(replace(key.at_step(step), rank=rank), file or "")  # which says what is missing
    return ComparedTensor(_key_at(run, rank, step, found), file or "")


def _asked_step(session: Session, key: TensorKey, arguments: Namespace) -> int:
    """The step that was asked about. An input that an earlier step left carries that earlier step in its key."""
    if arguments.step is not None:
        return _one(chosen(arguments.step, session.steps(key.rank), "step"), "step")
    focus = session.focus[1]
    return key.step if focus is None else focus


def _named(texts: list[str]) -> dict[str, str]:
    """``--with`` by kind; a text without a kind is a path. Raises TdbgError if a kind comes twice."""
    named: dict[str, str] = {}
    for text in texts:
        word, equals, value = text.partition("=")
        kind = word if equals and word in ("step", "rank", "tensor") else "file"
        if kind in named:
            raise TdbgError(f"two of {kind}", where=f"--with {text}", hint="name each at most once")
        named[kind] = value if kind != "file" else text
    return named


def _whole(text: str, word: str) -> int:
    if not is_whole(text):
        raise TdbgError(f"{text!r} is not a number", where=f"--with {word}={text}", hint=f"such as --with {word}=0")
    return int(text)
