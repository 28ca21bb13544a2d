"""``tdbg help``: the pages of the manual in the terminal, and a search through them."""

from __future__ import annotations

import argparse
import os
import re
import shutil
import sys
from argparse import Namespace
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final

from tui_debugger.cli.options import Commands, flag
from tui_debugger.cli.output import note
from tui_debugger.environment import command_of
from tui_debugger.errors import TdbgError, did_you_mean
from tui_debugger.text.clean import clean
from tui_debugger.text.writer import write_colored, write_data

if TYPE_CHECKING:
    from rich.console import RenderableType


TOPICS: Final = (
    *(
        "screen",
        "keys",
        "configuration",
        "commands",
        "conditions",
        "verdicts",
        "audit",
        "live",
        "formats",
        "dump-config",
    ),
    *("ci", "json", "python-api", "mindinsight", "performance", "reliability", "troubleshooting", "contributing"),
)
"""The pages in the order of the list. Each is ``docs/TOPIC.md``."""
PAGES: Final = Path(__file__).parents[1] / "docs"
WIDEST: Final = 100
"""The widest page, in cells: longer lines are hard to read."""
_SHORT: Final = 28
"""A table column up to this number of cells does not wrap."""
_SHOWN: Final = 6
"""The number of lines of a topic that a search lists."""
_DESCRIPTION = """Shows the manual.
tdbg help                 lists the topics
tdbg help TOPIC           shows a page
tdbg help COMMAND         shows the options of a command
tdbg help WORD ...        searches the pages
"""


def register(commands: Commands) -> None:
    parser = commands.add_parser(
        "help",
        help="show the manual: topics, pages, search",
        description=_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("words", nargs="*", metavar="WORD", help="a topic, a command, or words to search for")
    flag(parser, "--search", "search for the words, even if they name a topic or a command")
    flag(parser, "--man", "print the man page tdbg(1) as roff: tdbg help --man | man -l -")
    parser.set_defaults(run=_run, unknown_options_are_words=True)


def _run(arguments: Namespace) -> int:
    from tui_debugger.cli.main import COMMANDS, build_parser

    if arguments.man:
        from tui_debugger.cli.completion import shell_file

        write_data(shell_file("man"))
        return 0
    words: list[str] = arguments.words
    if not words:
        if arguments.search:
            raise TdbgError("no words to search for", where="--search", hint="for example: tdbg help --search overflow")
        _print_long(_topics(tuple(COMMANDS)))
        return 0
    name = words[0].lower()
    if len(words) == 1 and not arguments.search:
        if name in TOPICS:
            _print_long(_page(name))
            return 0
        if name in COMMANDS:
            build_parser(name).parse_args([name, "--help"])  # prints it and leaves
    found = [match for topic in TOPICS if (match := _search(topic, words)) is not None]
    if not found:
        raise _unknown(words, (*TOPICS, *COMMANDS))
    _print_long(_matches(found, words))
    return 0


def _unknown(words: Sequence[str], names: Sequence[str]) -> TdbgError:
    """The error for unknown words; it names similar names."""
    asked = " ".join(words)
    meant = next(filter(None, (did_you_mean(word.lower(), names) for word in words)), "")
    return TdbgError(
        f"no topic, command or page has {clean(asked)!r}",
        where=f"tdbg help {asked}",
        hint=f"{meant} `tdbg help` lists the topics".lstrip(),
    )


# -- what is shown ---------------------------------------------------------------------------------


def _topics(commands: Sequence[str]) -> RenderableType:
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    topics = Table.grid(padding=(0, 2))
    topics.add_column(style="bold", no_wrap=True)
    for topic in TOPICS:
        topics.add_row(f"  {topic}", _summary(topic))
    ways = Table.grid(padding=(0, 2))
    ways.add_column(style="bold", no_wrap=True)
    ways.add_row("tdbg help TOPIC", "shows a page; other words are searched for in all pages")
    own = " ".join(command for command in commands if command not in TOPICS)  # a topic of that name has a page
    ways.add_row("tdbg help COMMAND", f"its options: {own}")
    return Group(Text("topics:"), topics, ways)


def _summary(topic: str) -> str:
    return _text(topic).split("\n\n", 2)[1].replace("\n", " ")


def _text(topic: str) -> str:
    return (PAGES / f"{topic}.md").read_text("utf-8")


def _page(topic: str) -> RenderableType:
    from rich.cells import cell_len
    from rich.console import Console, ConsoleOptions, RenderResult
    from rich.markdown import CodeBlock, Heading, Markdown, TableElement
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    class LeftHeading(Heading):
        """A heading at the left, without a frame: Rich centers headings."""

        def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
            marks = "" if console.is_terminal else "#" * int(self.tag[1]) + " "
            yield Text(marks).append_text(self.text)

    class IndentedCode(CodeBlock):
        """Code on the terminal's own background: Rich uses a dark one."""

        def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
            code = Text(str(self.text).rstrip("\n"), style="markdown.code_block", overflow="fold")
            yield Padding(code, (0, 0, 0, 4))

    class CompactTable(TableElement):
        """A table whose short columns do not wrap, and without an empty header."""

        def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
            for table in super().__rich_console__(console, options):
                if isinstance(table, Table):
                    table.show_edge = False
                    table.show_header = any(str(column.header) for column in table.columns)
                    for column in table.columns:
                        column.overflow = "fold"
                    for column in table.columns[:-1]:
                        column.no_wrap = all(cell_len(str(cell)) <= _SHORT for cell in column.cells)
                    table.leading = int(not table.columns[0].no_wrap)
                yield table

    class Page(Markdown):
        elements: ClassVar = {
            **Markdown.elements,
            "heading_open": LeftHeading,
            "fence": IndentedCode,
            "code_block": IndentedCode,
            "table_open": CompactTable,
        }

    page = Page(_for_terminals(_text(topic)), hyperlinks=False)
    if not sys.stdout.isatty():  # without styles, what is to be typed must still be told from the sentence around it
        for token in page.parsed:
            for part in token.children or ():
                if part.type == "code_inline":
                    part.content = f"`{part.content}`"
    return page


_IMAGE = re.compile(r"^ *!\[[^\]]*\]\([^)]*\)\n+", re.MULTILINE)
_COMMENT = re.compile(r"^<!--.*?-->\n", re.MULTILINE | re.DOTALL)
_PAGE_LINK = re.compile(r"\[([^\]]+)\]\((?![a-z]+://)[^)]*\)")


def _for_terminals(text: str) -> str:
    """Removes what a terminal cannot show or follow: pictures, comments, links to files."""
    return _PAGE_LINK.sub(r"\1", _COMMENT.sub("", _IMAGE.sub("", text)))


# -- search ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _HelpLine:
    """A paragraph, list item, table row or line of code, with its heading."""

    heading: str
    text: str


@dataclass(frozen=True, slots=True)
class _TopicMatch:
    topic: str
    headings: tuple[str, ...]
    lines: tuple[_HelpLine, ...]

    @property
    def weight(self) -> tuple[int, int]:
        return len(self.headings), len(self.lines)


def _pattern(word: str) -> re.Pattern[str]:
    """Matches the beginning of a word; is case-sensitive if the word has capital letters."""
    begins = r"(?<![A-Za-z0-9])" if word[:1].isalnum() else ""
    return re.compile(begins + re.escape(word), 0 if word != word.lower() else re.IGNORECASE)


def _search(topic: str, words: Sequence[str]) -> _TopicMatch | None:
    """Returns the headings and lines of a page that have all words."""
    patterns = [_pattern(word) for word in words]

    def has_all(text: str) -> bool:
        return all(pattern.search(text) for pattern in patterns)

    lines = tuple(_lines(_text(topic)))
    headings = tuple(heading for heading in dict.fromkeys(line.heading for line in lines) if has_all(heading))
    found = tuple(line for line in lines if has_all(line.text))
    return _TopicMatch(topic, headings, found) if headings or found or has_all(topic) else None


_NEW_LINE = re.compile(r"\s*([-*|]|\d+\.) ?")
_MARKS = re.compile(r"\*\*|`|^[-*] |^\d+\. ")
_RULER = re.compile(r"\|[-:|]+\|")


def _lines(text: str) -> Iterator[_HelpLine]:
    """The lines of a page with wrapped source lines joined."""
    heading, held, code = "", "", False
    for line in [*_for_terminals(text).splitlines(), ""]:
        fence = line.lstrip().startswith("```")
        title = line.startswith("#") and not code
        if held and (fence or title or code or not line.strip() or _NEW_LINE.match(line)):
            yield _HelpLine(heading, _plain(held))
            held = ""
        if fence:
            code = not code
        elif title:
            heading = _plain(line.lstrip("# "))
        elif code:
            if line.strip():
                yield _HelpLine(heading, line.strip())
        elif line.strip() and not _RULER.fullmatch(line):
            held = f"{held} {line.strip()}".strip()


def _plain(line: str) -> str:
    """A line without Markdown marks; blanks separate the cells of a table."""
    if line.startswith("|"):
        cells = re.split(r"(?<!\\)\|", line)[1:-1]
        line = "  ".join(cell.strip().replace("\\|", "|") for cell in cells if cell.strip())
    return _MARKS.sub("", line)


def _matches(found: Sequence[_TopicMatch], words: Sequence[str]) -> RenderableType:
    """Topics with most matches first, each with the command that opens it."""
    from rich.console import Group
    from rich.text import Text

    patterns = [_pattern(word) for word in words]
    width = _columns() - 4
    parts: list[RenderableType] = []
    for match in sorted(found, key=lambda match: match.weight, reverse=True):
        parts.append(Text.assemble((f"tdbg help {match.topic}", "bold")))
        headings = dict.fromkeys((*match.headings, *(line.heading for line in match.lines)))
        left = _SHOWN
        for heading in headings:
            below = [line.text for line in match.lines if line.heading == heading][:left]
            if not below and heading not in match.headings:
                continue
            left -= len(below)
            parts.append(Text(f"  {heading}", style="italic"))
            for line in below:
                shown = Text("    " + _cut(line, patterns[0], width))
                for pattern in patterns:
                    shown.highlight_regex(pattern, "bold")
                parts.append(shown)
        if (more := len(match.lines) - (_SHOWN - left)) > 0:
            parts.append(Text(f"    … {more} more"))
    return Group(*parts)


def _cut(line: str, pattern: re.Pattern[str], width: int) -> str:
    """At most ``width`` characters of a line, around the first match."""
    if len(line) <= width:
        return line
    match = pattern.search(line)
    begin = (
        0
        if match is None or match.end() <= width - 1
        else max(0, min(match.start() - width // 3, len(line) - width + 1))
    )
    shown = ("…" if begin else "") + line[begin:]
    return shown if len(shown) <= width else shown[: width - 1] + "…"


# -- the terminal ----------------------------------------------------------------------------------


def _columns() -> int:
    return max(20, min(shutil.get_terminal_size().columns, WIDEST))


def _print_long(content: RenderableType) -> None:
    """Prints to stdout; a text longer than the terminal goes through the pager."""
    from rich.console import Console
    from rich.theme import Theme

    styles = {
        "markdown.h1": "bold",
        "markdown.h2": "bold underline",
        "markdown.h3": "bold",
        "markdown.code": "bold color(75)",
        "markdown.code_block": "color(75)",
        "markdown.item.bullet": "none",
        "markdown.item.number": "none",
        "markdown.table.header": "bold",
        "markdown.table.border": "dim",
    }
    terminal = sys.stdout.isatty()
    console = Console(width=_columns(), force_terminal=terminal, highlight=False, theme=Theme(styles))
    with console.capture() as captured:
        console.print(content)
    text = "".join(f"{line.rstrip()}\n" for line in captured.get().rstrip("\n").split("\n"))
    if not (terminal and text.count("\n") >= shutil.get_terminal_size().lines and _paged(text)):
        write_colored(*text.splitlines())


_LESS: Final = "-R -Psspace next page, / search, q quit$"
"""The options of less if the user set none: it shows styles, and says how to leave."""


def _paged(text: str) -> bool:
    """Shows a text with $PAGER, else with less; returns whether a pager ran."""
    import signal
    import subprocess

    words, wrong = command_of("PAGER", "less")
    if wrong:
        note(wrong)
    program = shutil.which(words[0]) if words else None
    if program is None or os.environ.get("TERM", "dumb") == "dumb":
        return False
    sys.stdout.flush()
    pager = subprocess.Popen(  # noqa: S603 - the program that the user chose
        [program, *words[1:]],
        stdin=subprocess.PIPE,
        env={"LESS": _LESS, **os.environ},
    )
    before = signal.signal(signal.SIGINT, lambda *_: None)  # Ctrl-C is the pager's
    try:
        pager.communicate(text.encode(sys.stdout.encoding or "utf-8", "backslashreplace"))
    finally:
        signal.signal(signal.SIGINT, before)
    return True
