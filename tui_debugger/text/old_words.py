"""**The** table of MindInsight's words, options, buttons and pages, for the manual, ``?`` and the palette."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Final

OLD: Final = "MindInsight"


@dataclass(frozen=True, slots=True)
class OldWord:
    """A word of MindInsight (``old``) and its equivalent (``here``, Markdown); ``kind``: a heading in the manual."""

    kind: str
    old: str
    here: str
    actions: tuple[str, ...] = ()

    @property
    def plain(self) -> str:
        return re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", self.here).replace("`", "")


def _of(kind: str, *rows: tuple[str, str, str]) -> tuple[OldWord, ...]:
    return tuple(OldWord(kind, old, here, tuple(actions.split())) for old, here, actions in rows)


OLD_WORDS: tuple[OldWord, ...] = (
    *_of(
        "Starting, options, environment variables",
        ("mindinsight start", "`tdbg open DUMP` for a dump, `tdbg listen` for a training; no server, no browser", ""),
        ("mindinsight stop", "`q`; a training that waits is asked for", "quit"),
        (
            "--summary-base-dir",
            "`tdbg open DIR`: the dumps below a directory, 6 levels deep; `tdbg ls`: those below this one",
            "",
        ),
        ("--enable-debugger", "`tdbg listen`", ""),
        ("--debugger-port", "`tdbg listen --port N`, 50051 as before", ""),
        ("--port, --url-path-prefix", "none: the screen is the terminal", ""),
        ("--workspace, --reload-interval", "none: no service that keeps logs; a dump that grows is followed", ""),
        ("HOST in constants.py", "`tdbg listen --host ADDRESS`, with a token: [`tdbg help live`](live.md)", ""),
        ("--offline-debugger-mem-limit, mem_limit", "none is needed: tensors are read in pieces", ""),
        ("--max-offline-debugger-session-num, session limits", "no limit: each terminal opens a dump", ""),
        ("--max-graph-node-size", "no limit", ""),
        ("ENABLE_MS_DEBUGGER, MS_DEBUGGER_HOST, MS_DEBUGGER_PORT", "the same: [`tdbg help live`](live.md)", ""),
        ("MS_DEBUGGER_PARTIAL_MEM", "the same; set the watchpoints before the first step", ""),
        ("MINDSPORE_DUMP_CONFIG, data_dump.json", "the same; `tdbg dump-config` writes and checks the file", ""),
        ("MS_DIAGNOSTIC_DATA_PATH", "the same: the dump is `debug_dump` below it", ""),
        ("multi-node data, put together by hand", "`tdbg open DIR DIR`: the ranks of several hosts are one run", ""),
        ("ASCEND_AICPU_PATH, CANN toolkit", "not needed: files of devices are read as they are", ""),
    ),
    *_of(
        "Training control",
        ("step, OK (run N steps)", "`]` runs one step, `F` N steps", "step_forward forward"),
        ("CONTINUE", "`c`: until a watchpoint hits", "continue"),
        ("PAUSE", "`p`", "pause"),
        ("TERMINATE", "`T`, after a question", "terminate"),
        ("Current Node", "`@` goes back to where the training stands", "go_to_stop"),
        ("Next Node", "`.`, where the training can stop inside a step", "next_node"),
        ("continue to, run to this node", "`t`, where the training can stop inside a step", "run_to_node"),
        ("reset (the step of a dump)", "`s`; `[` and `]` go one step", "step"),
        ("RECHECK", "`r` this step, `R` every step and rank", "recheck recheck_all"),
        ("logic card, rank selector", "`<` `>`; `tdbg ranks DUMP` compares them", "rank_back rank_forward"),
        ("Client IP, Device ID, Step", "the first line of the screen, with the rank", ""),
    ),
    *_of(
        "Watchpoints and hits",
        ("watchpoint list", "pane `3`", "pane_watchpoints"),
        ("create watchpoint (+)", "`w`; in commands `--watch`", "new_watchpoint"),
        ("conditions (TO, WCL, ...)", "the same 17, and expressions: [`tdbg help conditions`](conditions.md)", ""),
        (
            "NAN, INF, MAX, MIN, MAX-MIN, MEAN (1.0)",
            "`TO`, `TL max_gt=9`, `TS min_lt=-9`, `TR max_min_gt=9`; NaN or Inf alone: `EX nan > 0`, `EX inf > 0`",
            "",
        ),
        (
            "weight, gradient, activation value check",
            "`w` suggests the nodes of the condition; `F2` others",
            "",
        ),
        ("check boxes of nodes", "`Space` in the node list; in a search of those that are shown", "toggle_watch"),
        ("use recommended watchpoints", "added at first, `u` takes them away; `a` adds them", "add_recommended undo"),
        (
            "delete, clear all watchpoints",
            "`d`, and Delete all in `:`; `u` brings them back",
            "delete_watchpoint clear_watchpoints",
        ),
        ("hit list, watchpoint hits", "pane `4`; `n` and `N` go from hit to hit", "pane_hits next_hit"),
        ("hits of a watchpoint, graph file, logic card", "`f` in the hit list", "filter_hits"),
        ("set and actual value", "the last column of the hit list, `tdbg check DUMP`", ""),
        ("tuning guide, tuning advice", "`E`, `tdbg explain DUMP NODE`", "explain"),
        ("outdated", "the header says `outdated`, and `r` checks", "recheck"),
        (
            "check failed, error_code",
            "the reason in the row of the hit: [`tdbg help verdicts`](verdicts.md)",
            "show_quiet",
        ),
        ("error codes 5054B...", "no numbers: errors say what, where, what to do", ""),
    ),
    *_of(
        "Pages and panels",
        ("summary list, session list", "the start page of `tdbg open`; `tdbg ls`", ""),
        ("node list, node search", "pane `1`, `/`", "pane_nodes search"),
        (
            "node type, graph file selector, watched only",
            "`f` in the node list; `{` `}` by graph",
            "filter_nodes graph_forward",
        ),
        (
            "computational graph",
            "the node list in execution order; around a tensor `L`, `tdbg relations DUMP NODE --sketch`",
            "relations",
        ),
        ("stack list, stack search", "pane `2`, `m`, `/`; `Enter` shows the nodes of a line", "pane_stack stack_mode"),
        ('stack of a node, select_by="code_stack"', "pane `2`; `tdbg ls DUMP --line FILE:LINE`", ""),
        ("node detail, tensor values", "pane `5`; `v` shows the source", "pane_tensors source"),
        ("execution history", "`y`, `tdbg ls DUMP --steps`", "history"),
        ("Containing Data, Graph Name", "`d` and `f` in the run history", ""),
    ),
    *_of(
        "Looking at tensors",
        ("tensor check view, View", "`Enter` on a tensor, `tdbg show DUMP NODE`", "select"),
        ("chart mode, heat map", "`t` in the values, `tdbg show DUMP NODE --heat`", "heat"),
        ("value where the mouse is", "below the values: that of the element under the cursor", ""),
        ("slicing, dimension selection", "`s` in the values: `[0, :, 3:9]`", "slice"),
        ("precision, decimals", "`+` and `-`; Scientific in `:`", "finer(1) scientific"),
        ("previous step", "`p` in the values; of a training: parameters, and what was looked at then", "previous"),
        ("compare with the previous step, tolerance", "`C`; there `a` `A` in percent, `T` for others", "compare"),
        ("tensor statistics", "pane `5`, `b`, `tdbg stat DUMP`", "distribution"),
        ("statistic.csv, Opdebug files, mapping.csv", "read as they are, as a part of the dump", ""),
        ("tensor relationship graph", "`L`, `tdbg relations DUMP NODE`", "relations"),
        ("download", "`e`, `tdbg export DUMP tensors -o OUT`", "export"),
        ("export_graphs, export_xlsx", "the same in the Python API; `tdbg export DUMP graph -o OUT`", ""),
        (
            "DumpParser, convert_all_data_to_host, msaccucmp.py",
            "the first two in the Python API; `tdbg convert DUMP -o DIR`",
            "",
        ),
        ("DumpAnalyzer", "the same: [`tdbg help python-api`](python-api.md)", ""),
    ),
)


@cache
def _by_action() -> dict[str, str]:
    found: dict[str, list[str]] = {}
    for word in OLD_WORDS:
        for action in word.actions:
            found.setdefault(action, []).append(word.old)
    return {action: ", ".join(words) for action, words in found.items()}


def old_words(action: str) -> str:
    return _by_action().get(action, "")


def old_words_table() -> Iterator[str]:
    kind = ""
    for word in OLD_WORDS:
        if word.kind != kind:
            yield from ([""] if kind else [])
            kind = word.kind
            yield from (f"### {kind}", "", f"| {OLD} | here |", "|---|---|")
        yield f"| {word.old} | {word.here} |"
