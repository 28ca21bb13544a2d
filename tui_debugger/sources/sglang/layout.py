"""Finds dumps of SGLang by the names of files.

Its dumper writes a file for each tensor, named by tags: ``step=3___rank=0___dump_index=12___name=loss.pt``. Its option
``--debug-tensor-dump-output-folder`` writes a file for each pass: ``TP0_PP0_Rank0_pid7/Pass00003.pt``.
"""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tui_debugger.sources.directories import NamesReader, names_in
from tui_debugger.sources.registry import SHOWS_NOTHING, Has, Order

if TYPE_CHECKING:
    from tui_debugger.sources.registry import Reader

SUFFIX: Final = ".pt"
STEP_TAGS: Final = ("step", "curr_step", "forward_pass_id")
"""Names of the tag of the step; newer generations use the first one."""
SEPARATOR: Final = "___"
PASS: Final = re.compile(r"Pass(\d{1,18})\.pt")
PASS_RANK: Final = re.compile(r"TP(\d{1,9})_PP(\d{1,9})_Rank(\d{1,9})_pid(\d{1,18})")
_TAGGED: Final = re.compile(rf"(?:^|___)(?:{'|'.join(STEP_TAGS)})=\d+(?:___.*)?___name=|^name=.*___(?:step|curr_step)=")


def read_tags(stem: str) -> dict[str, str]:
    """Returns the tags of a file of the dumper by name, in their order.

    A tag ends at the next separator, and its name at its first ``=``: values may hold both signs.
    """
    tags: dict[str, str] = {}
    last = ""
    for part in stem.split(SEPARATOR):
        name, equals, value = part.partition("=")
        if equals and name not in tags:
            tags[name] = value
            last = name
        elif last:
            tags[last] += SEPARATOR + part
    return tags


def is_tagged(name: str) -> bool:
    return name.endswith(SUFFIX) and _TAGGED.search(name) is not None


def holds_tagged(directory: str) -> bool:
    return any(is_tagged(name) for name in names_in(directory))


def holds_passes(directory: str) -> bool:
    return any(PASS_RANK.fullmatch(name) and _is_pass_rank(f"{directory}/{name}") for name in names_in(directory))


def _is_pass_rank(directory: str) -> bool:
    return any(PASS.fullmatch(name) for name in names_in(directory))


def _dumper_around(start: Path) -> Path | None:
    return start if holds_tagged(os.fspath(start)) else None


def _passes_around(start: Path) -> Path | None:
    if holds_passes(os.fspath(start)):
        return start
    return start.parent if PASS_RANK.fullmatch(start.name) and holds_passes(os.fspath(start.parent)) else None


DUMPER: Final[Reader] = NamesReader(
    name="SGLang dumper",
    looked_for="files of SGLang's dumper (step=0___rank=0___…___name=….pt)",
    source="tui_debugger.sources.sglang.source:DumperSource",
    holds=holds_tagged,
    around=_dumper_around,
    shows=replace(
        SHOWS_NOTHING,
        values=Has.YES,
        order=Order.EXECUTION,
        gradients=Has.SOME,
        record=(
            "DUMPER_ENABLE=1 DUMPER_DIR=run DUMPER_NON_INTRUSIVE_MODE=all python -m sglang.launch_server ...",
            'dumper.dump("attn_out", x, layer_id=1)  # in the model, for more',
            "dumper.step()  # at the end of each step",
        ),
        tensors_advice="SGLang's dumper: DUMPER_NON_INTRUSIVE_MODE=all for inputs and outputs of every module, or "
        "dumper.dump() in the model",
    ),
)
PASSES: Final[Reader] = NamesReader(
    name="SGLang passes",
    looked_for="files of SGLang's passes (TP0_PP0_Rank0_pid7/Pass00000.pt)",
    source="tui_debugger.sources.sglang.source:PassSource",
    holds=holds_passes,
    around=_passes_around,
    shows=replace(
        SHOWS_NOTHING,
        values=Has.YES,
        order=Order.EXECUTION,
        record=("python -m sglang.launch_server ... --debug-tensor-dump-output-folder run",),
        tensors_advice="passes hold outputs only; SGLang's dumper with DUMPER_NON_INTRUSIVE_MODE=all also inputs",
    ),
)
