"""The options that commands share: which run, steps and tensors, and which watchpoints."""

from __future__ import annotations

import argparse
import dataclasses
import math
import re
from argparse import Namespace
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from tui_debugger.cli.output import Command, note, nowhere, runner, say_scope
from tui_debugger.errors import BadWatchpointError, TdbgError
from tui_debugger.text.numbers import brief

if TYPE_CHECKING:
    from argparse import _SubParsersAction

    from tui_debugger.check.sweep import TensorChoice
    from tui_debugger.check.types import Pair
    from tui_debugger.config import Config
    from tui_debugger.model import Category, ProgressFn, Watchpoint
    from tui_debugger.session import Session
    from tui_debugger.stats.workers import MeasureWorkers


MAX_SLOT = 32767
"""The greatest number of a slot."""
CONSTANTS = "constants are left out unless --category names them (constant)"


def flag(parser: argparse._ActionsContainer, name: str, says: str) -> None:
    parser.add_argument(name, action="store_true", help=says)


def repeated(
    parser: argparse._ActionsContainer, name: str, metavar: str, says: str, read: Callable[[str], object] = str
) -> None:
    """Adds an option that may be given several times."""
    parser.add_argument(name, action="append", default=[], metavar=metavar, type=read, help=says)


def add_choice(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("which tensors of a node")
    group.add_argument("--side", choices=("in", "out", "all"), default="all", help="inputs, outputs or both (default)")
    group.add_argument("--slot", type=spans, metavar="N", help="inputs or outputs by number, for example 0,2-3")
    repeated(
        group,
        "--category",
        "WORD",
        "only nodes of these categories, for example weight,gradient (may be repeated); " + CONSTANTS,
    )


def choice_of(arguments: Namespace) -> TensorChoice:
    """Returns the chosen tensors. Raises TdbgError for an unknown category."""
    from tui_debugger.check.sweep import TensorChoice
    from tui_debugger.model import CATEGORY_WORDS, Side

    categories = categories_of(arguments.category)
    return TensorChoice(
        side={"in": Side.INPUT, "out": Side.OUTPUT}.get(arguments.side),
        slots=None if arguments.slot is None else _slots(arguments.slot),
        categories=categories or CATEGORY_WORDS["tensor"],
    )


def categories_of(texts: Sequence[str]) -> frozenset[Category]:
    """Parses texts like ``weight,gradient``. Raises TdbgError for an unknown category."""
    from tui_debugger.model import CATEGORY_WORDS

    words = [word.strip().lower() for text in texts for word in text.split(",")]
    for word in words:
        if word not in CATEGORY_WORDS:
            raise TdbgError(
                f"no category is called {word!r}",
                where=f"--category {','.join(texts)}",
                hint="one of " + ", ".join(CATEGORY_WORDS),
            )
    return frozenset(category for word in words for category in CATEGORY_WORDS[word])


def _slots(wanted: Sequence[Span]) -> frozenset[int]:
    return frozenset(slot for first, last in wanted for slot in range(first, min(last, MAX_SLOT) + 1))


def nothing_chosen(path: Path) -> TdbgError:
    """The error if no tensor is left."""
    return TdbgError(
        "no tensor matches", where=str(path), hint=f"`tdbg ls` lists the nodes and what they have; {CONSTANTS}"
    )


_FILE: Final = "a TOML file of watchpoints, as the screen saves them (may be repeated)"


def add_watches(
    parser: argparse.ArgumentParser,
    watch: str = "a watchpoint, for example 'TL abs_mean_gt=0.001 @ category=gradient' (may be repeated)",
    watch_file: str = _FILE,
) -> None:
    """Adds ``--watch`` and ``--watch-file``, with other help for a command that uses them differently."""
    repeated(parser, "--watch", "TEXT", watch)
    repeated(parser, "--watch-file", "FILE", watch_file, Path)


def add_recommended(
    parser: argparse.ArgumentParser, says: str = "add the recommended watchpoints to the given ones"
) -> None:
    flag(parser, "--recommended", says)


def add_judging(parser: argparse._ActionsContainer) -> None:
    """Adds the options that decide the exit code, for the commands for CI."""
    repeated(
        parser,
        "--fail-on",
        "TO,TZ",
        "only findings of these conditions give exit code 1; the others are listed all the same",
    )
    flag(
        parser,
        "--allow-unreadable",
        "exit code 0 although some tensors could not be read or compared, or parts of the dump not listed",
    )
    flag(
        parser, "--allow-unmatched", "exit code 0 although a watchpoint of --watch or --watch-file looked at no tensor"
    )


def given_watchpoints(arguments: Namespace) -> tuple[Watchpoint, ...]:
    """Returns the watchpoints of --watch and --watch-file, disabled ones included; empty only without both options.

    Raises BadWatchpointError, which names the text, or the file and the entry.
    """
    if not (arguments.watch or arguments.watch_file):
        return ()
    from tui_debugger.session.watchpoints import watchpoints_from

    return watchpoints_from(arguments.watch, arguments.watch_file)


def enabled_watchpoints(arguments: Namespace) -> list[Watchpoint]:
    """The enabled watchpoints of both options, without duplicates, numbered from 1.

    Raises as ``given_watchpoints``, and TdbgError if all of them are disabled.
    """
    given = given_watchpoints(arguments)
    enabled = dict.fromkeys(watch for watch in given if watch.enabled)
    if given and not enabled:
        raise _disabled()
    return [dataclasses.replace(watch, id=number) for number, watch in enumerate(enabled, 1)]


def _disabled() -> TdbgError:
    return TdbgError(
        "every given watchpoint is disabled", where="--watch-file", hint="enable one, or give one with --watch"
    )


MAP_ROWS: Final = 40
"""Without --depth a map opens its scopes as long as there are no more rows than this."""
MAP_NAMES: Final = 40
"""Cells that are left for names at the end of a map's lines."""


def add_map_rows(parser: argparse.ArgumentParser) -> None:
    rows = parser.add_mutually_exclusive_group()
    rows.add_argument(
        "--depth",
        type=whole("a number of levels from 1 to 99", 1, 99),
        metavar="N",
        help=f"open scopes down to level N (default: as far as there are {MAP_ROWS} rows)",
    )
    flag(rows, "--nodes", "a row per node, in execution order")
    flag(parser, "--bad", "only rows in which something was found")


def add_watchpoints(
    session: Session,
    given: Sequence[Watchpoint],
    pairs: Sequence[Pair] = (),
    progress: ProgressFn | None = None,
    *,
    recommended: bool,
) -> frozenset[int]:
    """Fills the watchpoint list of a session; returns the ids of the given ones.

    The nodes of ``pairs`` decide what is recommended. Raises TdbgError if no enabled watchpoint is left.
    """
    # A disabled one must not keep the same rule, enabled elsewhere, from being added.
    session.watchpoints.add_missing(watchpoint for watchpoint in given if watchpoint.enabled)
    rules = frozenset(watchpoint.id for watchpoint in session.watchpoints.items())
    if recommended:
        if session.recommended_changes:
            note("the recommended watchpoints are those of the configuration (see tdbg config)")
        _ = session.add_recommended() if progress is None else session.add_recommended(pairs, progress)
    if not len(session.watchpoints):
        if not recommended:
            raise _disabled()
        why = "".join(f". {limit}" for limit in session.info.limits[:1])
        if parts := session.unreadable():  # not that there is nothing to watch: it is not known
            from tui_debugger.check.results import advice_for, parts_text

            raise TdbgError(
                f"nothing can be judged: {parts_text(parts)}{why}", where=session.info.path, hint=advice_for(parts)
            )
        raise TdbgError(
            f"no watchpoint is recommended for this dump: it has no tensors to watch{why}",
            where=session.info.path,
            hint="`tdbg ls` lists the nodes",
        )
    return rules


def add_config(parser: argparse._ActionsContainer) -> None:
    flag(parser, "--no-config", "leave the configuration file out (see tdbg config)")


def add_appearance(parser: argparse.ArgumentParser) -> None:
    """Adds the screen options that the configuration has as well."""
    from tui_debugger.config import THEMES

    parser.add_argument("--theme", choices=THEMES, metavar="NAME", help=f"colours: {', '.join(THEMES)}")
    mouse = parser.add_mutually_exclusive_group()
    mouse.add_argument(
        "--no-mouse",
        dest="mouse",
        action="store_false",
        default=None,
        help="leave the mouse to the terminal's own selection",
    )
    mouse.add_argument(
        "--mouse", action="store_true", default=None, help="use the mouse, although the configuration does not"
    )


def configured(arguments: Namespace) -> Config:
    """Returns the configuration, defaults with --no-config. Raises ConfigError."""
    from tui_debugger.config import Config, config_path, load

    return Config() if arguments.no_config else load(config_path())


def screen_config(arguments: Namespace) -> Config:
    """Returns the configuration with the values of the screen's options. Raises ConfigError."""
    config = configured(arguments)
    theme = config.theme if arguments.theme is None else arguments.theme
    return dataclasses.replace(config, theme=theme, mouse=config.mouse if arguments.mouse is None else arguments.mouse)


def conditions_of(texts: Sequence[str]) -> frozenset[str]:
    """The ids of conditions in texts like ``TO,TZ``. Raises BadWatchpointError for an unknown condition."""
    from tui_debugger.watch.condition_table import by_abbr

    words = [word for text in texts for word in text.split(",")]
    try:
        return frozenset(by_abbr(word).id for word in words)
    except BadWatchpointError as error:
        raise BadWatchpointError(error.what, where=f"--fail-on {','.join(texts)}", hint=error.hint) from None


Commands: TypeAlias = "_SubParsersAction[argparse.ArgumentParser]"
"""Where a command adds its parser."""
_PART = re.compile(r"\s*(\d{1,9})\s*(?:-\s*(\d{1,9})\s*)?")
Span = tuple[int, int]
"""First and last number, both included."""


def add_command(
    commands: Commands,
    name: str,
    summary: str,
    description: str,
    epilog: str | None = None,
    *,
    answer: Command | None = None,
    judges: bool = False,
    without_path: str = "",
    several: bool = False,
    **more: Any,
) -> argparse.ArgumentParser:
    """Adds the parser of a command on a dump; texts of several lines are laid out already.

    ``answer`` runs the command; ``judges``: the documents of the command, errors too, have a verdict.
    ``without_path`` says what the command does without PATH; empty if it needs a PATH. ``several``: it takes more
    directories with ranks of the same run. ``more`` goes to argparse.
    """
    laid_out = epilog is not None or "\n" in description
    parser = commands.add_parser(
        name,
        help=summary,
        description=description,
        epilog=epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter if laid_out else argparse.HelpFormatter,
        **more,
    )
    if answer is not None:
        parser.set_defaults(run=runner(name, answer, judges=judges))
    says = "where the dump is" + (f" (default: {without_path})" if without_path else "")
    parser.add_argument("path", type=given_path, metavar="PATH", help=says, nargs="?" if without_path else None)
    if several:
        parser.add_argument(
            "more",
            type=given_path,
            metavar="MORE",
            nargs="*",
            help="where more ranks of the same run are, of other hosts",
        )
    return parser


def working_directory() -> Path:
    """Returns the working directory. Raises TdbgError if it was removed."""
    try:
        return Path.cwd()
    except OSError as error:
        raise nowhere(error) from None


def given_path(text: str) -> Path:
    """Returns a path that the user named; refuses an empty text, such as an unset variable."""
    if not text:
        raise argparse.ArgumentTypeError("is empty: . is the working directory")
    return Path(text)


def add_node(parser: argparse.ArgumentParser, without: str = "", nargs: str | None = None) -> None:
    says = (
        f"as for tdbg show; without a slot {without}"
        if without
        else "id of a node, the end of it, or any part that only one node has; :0 is output 0, :in1 input 1, :in all "
        "inputs; also :out, :param; #1 at the end is the first of several runs within a step (default: the newest)"
    )
    parser.add_argument("node", nargs=nargs, metavar="NODE[:slot]", help=says)


def add_maps(parser: argparse._ActionsContainer) -> None:
    """Adds the options that pair names, steps and ranks of two runs: ``--map-name``, ``--map-step``, ``--map-rank``."""
    repeated(
        parser,
        "--map-name",
        "s/OLD/NEW/",
        "nodes of the first run by the names they have in the second (may be repeated)",
    )
    for word, more in (("step", ""), ("rank", "; 0:0 and 0:1: what ranks 0 and 1 share")):
        repeated(parser, f"--map-{word}", "A:B", f"{word}s that are the same one (may be repeated){more}", number_pair)


def add_comparison(parser: argparse._ActionsContainer) -> None:
    """Adds the options of comparing two runs: pairing, and ignored differences."""
    add_maps(parser)
    repeated(
        parser,
        "--dims",
        "NODES=HOW",
        "how ranks share tensors of some nodes: replicated, sum, mean, flat, the dimension that is cut, 1:zigzag, "
        "or 0:3 of three fused weights (may be repeated; default: found out by values)",
    )
    parser.add_argument(
        "--noise",
        type=Path,
        metavar="DIR",
        help="a healthy repeat of the first run: up to 3 times as much as these two differ by is no difference",
    )
    parser.add_argument(
        "--map-file",
        type=Path,
        metavar="FILE",
        help='JSON: {"nodes": {A: B}, "names": [...], "steps": {}, "ranks": {}, "dims": {}}',
    )
    repeated(
        parser,
        "--type-tolerance",
        "TYPE=R,A",
        "relative and absolute tolerance for one type, for example bfloat16=1e-2,1e-3 (may be repeated)",
        _type_tolerance,
    )


_COMPARISON: Final = ("map_name", "map_step", "map_rank", "map_file", "dims", "noise", "type_tolerance")
"""The options of ``add_comparison``."""


def refuse_comparison(arguments: Namespace, more: Iterable[str], *, where: str = "", hint: str) -> None:
    """Raises TdbgError for an option of comparing two runs, or one of ``more``: there is no second run."""
    for name in (*_COMPARISON, *more):
        if getattr(arguments, name, None):
            option = f"--{name.replace('_', '-')}"
            raise TdbgError(f"{option} is for two runs", where=where or option, hint=hint)


def _type_tolerance(text: str) -> tuple[str, float, float]:
    """Parses ``bfloat16=1e-2,1e-3``: type, relative and absolute tolerance."""
    from tui_debugger.stats.dtypes import canonical_name  # needs NumPy

    name, equals, values = text.partition("=")
    relative, _, absolute = values.partition(",")
    try:
        found = canonical_name(name), float(relative), float(absolute or 0)
    except ValueError:
        found = "", 0.0, 0.0
    if not (equals and found[0] and 0 <= found[1] < float("inf") and 0 <= found[2] < float("inf")):
        msg = f"{text!r} is not a type with tolerances such as bfloat16=1e-2,1e-3"
        raise argparse.ArgumentTypeError(msg)
    return found


def at_least_zero(most: float) -> Callable[[str], float]:
    """Returns a parser of numbers from 0 to ``most``."""

    def parse(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = -1.0
        if not (0 <= value <= most and value < math.inf):
            msg = f"{text!r} is not a number from 0 to {most:g}" if most < math.inf else f"{text!r} is not 0 or more"
            raise argparse.ArgumentTypeError(msg)
        return value

    return parse


def number_pair(text: str) -> tuple[int, int]:
    one, colon, other = text.partition(":")
    if not (colon and is_whole(one) and is_whole(other)):
        msg = f"{text!r} is not two numbers such as 0:1"
        raise argparse.ArgumentTypeError(msg)
    return int(one), int(other)


def add_limit(parser: argparse.ArgumentParser, what: str) -> None:
    parser.add_argument(
        "--limit",
        type=whole("a number of rows such as 20, or 0 for all"),
        default=20,
        metavar="N",
        help=f"{what} (default: 20; 0: all of them)",
    )


def add_top(parser: argparse.ArgumentParser, what: str, most: int) -> None:
    """Adds ``--top``: the length of a list, see ``output.print_first``."""
    parser.add_argument(
        "--top",
        type=whole(f"a number of {what} such as 20, or 0 for all"),
        default=most,
        metavar="K",
        help=f"{what} that are listed (default: {most}; 0: all)",
    )


def add_where(
    parser: argparse.ArgumentParser,
    rank: str = "ranks, for example 0,4-6 (default: all)",
    step: str = "steps, for example 0,4-6 (default: all)",
) -> None:
    """Adds the options of every headless command: rank, step, nodes, graph, JSON."""
    where = parser.add_argument_group("which part of the dump")
    where.add_argument("--rank", type=spans, metavar="N", help=rank)
    where.add_argument("--step", type=spans, metavar="N", help=step)
    where.add_argument("--filter", metavar="REGEX", help="only nodes whose name matches")
    where.add_argument("--graph", metavar="NAME", help="only nodes of this graph, by name or number")
    flag(parser, "--json", "one JSON document on stdout instead of a table")
    add_opening(parser)
    add_config(parser)


def add_opening(parser: argparse.ArgumentParser) -> None:
    """Adds the options of opening a dump: its index, and ignored parts of PATH."""
    flag(parser, "--no-cache", "neither use nor fill the index of statistics (see tdbg config)")
    repeated(
        parser,
        "--ignore",
        "GLOB",
        "leave out files and directories such as '*.bak' or 'old/*.pt'; the verdict says so (may be repeated)",
    )
    flag(
        parser, "--no-default-ignore", "also look into installed environments, caches and the stores of version control"
    )
    add_redirects(parser)


def add_redirects(parser: argparse.ArgumentParser) -> None:
    """Adds the option of every command that takes a URL; ``main`` obeys it."""
    repeated(
        parser,
        "--redirect-to",
        "HOST",
        "let the web server of a URL redirect to this other host, or HOST:PORT (may be repeated)",
    )


def begin_opening(arguments: Namespace, config: Config) -> None:
    """Applies the ignored parts of the command line and the configuration."""
    from tui_debugger import opener

    opener.hide((*config.ignore, *getattr(arguments, "ignore", ())))


def add_work(parser: argparse.ArgumentParser) -> None:
    """Adds the options that choose who measures tensors."""
    work = parser.add_argument_group("who does the work")
    work.add_argument(
        "--jobs",
        type=whole("a number of threads from 1 to 999", 1, 999),
        metavar="N",
        help="measure with N threads; 1 starts none (default: one per core, up to 8)",
    )
    work.add_argument(
        "--executor", metavar="WHERE", help="measure on the dask cluster whose scheduler this is: dask:tcp://HOST:PORT"
    )


def is_whole(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) < 10


def whole(what: str, least: int = 0, most: int = 10**9 - 1) -> Callable[[str], int]:
    """Returns a parser of whole numbers within bounds; ``what`` ends the sentence that refuses another text."""

    def parse(text: str) -> int:
        if not (is_whole(text) and least <= int(text) <= most):
            msg = f"{text!r} is not {what}"
            raise argparse.ArgumentTypeError(msg)
        return int(text)

    return parse


def spans(text: str) -> tuple[Span, ...]:
    found = []
    for part in text.split(","):
        match = _PART.fullmatch(part)
        if match is None or (match[2] and int(match[2]) < int(match[1])):
            msg = f"{text!r} is not a list of numbers such as 0,4-6"
            raise argparse.ArgumentTypeError(msg)
        found.append((int(match[1]), int(match[2] or match[1])))
    return tuple(found)


def chosen(wanted: Sequence[Span] | None, there: Iterable[int], word: str) -> list[int]:
    """The wanted numbers of ``there``, ascending.

    Raises TdbgError for a missing number or a wholly missing span: a check of nothing must not look clean.
    """
    numbers = sorted(set(there))
    if wanted is None:
        return numbers
    for first, last in wanted:
        if not any(first <= number <= last for number in numbers):
            asked = f"{first}" if first == last else f"{first}-{last}"
            raise TdbgError(
                f"{word} {asked} is not in this dump",
                where=f"--{word} {asked}",
                hint=f"there is {word} {brief(numbers)}" if numbers else f"no {word} has data",
            )
    return [number for number in numbers if any(first <= number <= last for first, last in wanted)]


def open_session(
    arguments: Namespace, progress: ProgressFn, path: Path | None = None, *, is_text: bool = True
) -> Session:
    """Opens a session on PATH or another path, restricted to the chosen nodes; it is closed when the command ends.

    Its first line names the part of the run: on stdout if the command writes text there (``is_text``), else on stderr.
    Raises TdbgError for no dump, an unknown graph, a bad regular expression, or no node left.
    """
    from tui_debugger.check.results import AskedPart
    from tui_debugger.graph.search import NodeQuery
    from tui_debugger.session.session import open_dump

    config = configured(arguments)
    begin_opening(arguments, config)
    session = open_dump(
        path or arguments.path,
        workers=workers_of(arguments),
        remember=not arguments.no_cache,
        more=getattr(arguments, "more", ()),
        enter_environments=arguments.no_default_ignore,
    )
    arguments.at_exit.callback(session.close)
    for wrong in session.settings:
        note(wrong)
    is_text = is_text and not any(getattr(arguments, name, False) for name in ("json", "csv"))
    say_scope(session.scope.text, on_stdout=is_text)
    session.asked = AskedPart(arguments.rank, arguments.step)
    session.recommended_changes = config.recommended
    session.open(progress, tree=False)
    session.take_inventory(progress)
    _refuse_unlisted(session, arguments.rank)
    if arguments.filter is None and arguments.graph is None:
        return session
    ranks = chosen(arguments.rank, session.ranks(), "rank")
    names = sorted({info.name for rank in ranks for info in session.nodes(rank).graphs})
    graphs = [name for name in names if arguments.graph in (None, name, re.sub(r".*\D", "", name))]
    if not graphs:
        raise TdbgError(
            f"no graph is called {arguments.graph!r}",
            where=f"--graph {arguments.graph}",
            hint=f"there is {', '.join(names)}",
        )
    wanted = frozenset(graphs if arguments.graph is not None else ())
    session.restrict(NodeQuery(text=arguments.filter or "", regex=True, case_sensitive=True, graphs=wanted))
    if not any(session.in_scope(rank).any() for rank in ranks):
        raise TdbgError(
            "no node matches",
            where=" ".join(f"--{name} {value}" for name in ("filter", "graph") if (value := getattr(arguments, name))),
            hint="`tdbg ls` lists the nodes",
        )
    return session


def _refuse_unlisted(session: Session, wanted: Sequence[Span] | None) -> None:
    """Raises TdbgError if a wanted rank exists but cannot be listed, and its span has no other rank."""
    for first, last in wanted or ():
        if any(first <= rank <= last and session.steps(rank) for rank in session.ranks()):
            continue
        parts = [part for part in session.unreadable() if part.rank is not None and first <= part.rank <= last]
        if parts:
            raise TdbgError(
                f"no step of rank {parts[0].rank} can be listed: {parts[0].where} ({parts[0].why})",
                where=f"{session.info.path}/{parts[0].where}",
                hint="see that it may be read and that its copy is complete",
            )


def workers_of(arguments: Namespace) -> MeasureWorkers:
    """Returns the workers of --jobs or --executor. Raises TdbgError if both are given or the cluster cannot be used."""
    from tui_debugger.stats.workers import MeasureWorkers

    if "executor" not in arguments:  # a command that only lists
        return MeasureWorkers(jobs=1)
    if arguments.executor is None:
        return MeasureWorkers(arguments.jobs)
    if arguments.jobs is not None:
        raise TdbgError(
            "--jobs is about threads of this program",
            where=f"--jobs {arguments.jobs} --executor {arguments.executor}",
            hint="the cluster has as many workers as it has: leave --jobs out",
        )
    from tui_debugger.stats.cluster import executor_of

    return MeasureWorkers(executor=executor_of(arguments.executor))


def several_graphs(session: Session) -> bool:
    """Tells whether any rank has several graphs: a node's name may then be ambiguous."""
    return bool(session.graph_names())


def pairs_of(session: Session, arguments: Namespace) -> tuple[Pair, ...]:
    """The (rank, step) pairs that --rank and --step choose, by step, then rank.

    Raises TdbgError for a rank or step that was not dumped, or a named step that a named rank lacks.
    """
    ranks = chosen(arguments.rank, session.ranks(), "rank")
    steps = chosen(arguments.step, (step for rank in ranks for step in session.steps(rank)), "step")
    _note_missing(arguments.rank, ranks, "rank")
    _note_missing(arguments.step, steps, "step")
    for step in _single(arguments.step):
        _look_for(step, {rank: session.steps(rank) for rank in ranks}, _single(arguments.rank))
    return session.pairs(ranks, steps)


def open_pairs(arguments: Namespace, progress: ProgressFn) -> tuple[Session, tuple[Pair, ...]]:
    """Opens a session, and returns the chosen (rank, step) pairs with it. Raises as ``open_session``, ``pairs_of``."""
    session = open_session(arguments, progress)
    return session, pairs_of(session, arguments)


def _single(wanted: Sequence[Span] | None) -> list[int]:
    """The numbers that are named one by one, not as part of a span."""
    return [first for first, last in wanted or () if first == last]


def _look_for(step: int, steps: Mapping[int, Sequence[int]], named: Collection[int]) -> None:
    """Notes which ranks lack a step that other ranks have. Raises TdbgError if one of these ranks was named."""
    without = [rank for rank, there in steps.items() if step not in there]
    for rank in without:
        if rank in named:
            raise TdbgError(
                f"rank {rank} has no step {step}",
                where=f"--rank {rank} --step {step}",
                hint=f"it has step {brief(steps[rank])}" if steps[rank] else "no step of it has data",
            )
    if without:
        note(f"step {step} is not in this dump for rank {brief(without)}: looking at the other ranks")


def _note_missing(wanted: Sequence[Span] | None, found: Sequence[int], word: str) -> None:
    """Notes the part of a span beyond both ends of the existing numbers. Gaps between dumped steps are usual."""
    for first, last in wanted or ():
        inside = [number for number in found if first <= number <= last]
        beyond = [(first, inside[0] - 1), (inside[-1] + 1, last)]
        missing = ",".join(f"{low}" if low == high else f"{low}-{high}" for low, high in beyond if low <= high)
        if missing:
            note(f"{word} {missing} is not in this dump: looking at {word} {brief(inside)}")
