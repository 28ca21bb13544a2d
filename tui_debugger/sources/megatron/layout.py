"""Finds tensors that Megatron-LM saves with ``--save-activations-interval`` and its like, by names.

``activations/iter_0000003/mp_rank_00.pth``, and the same for ``dgrads``, ``wgrads`` and ``params``. The tensor-parallel
rank is followed by the numbers of the pipeline stage and of the experts, where there are several.
"""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tui_debugger.sources.directories import NamesReader, names_in
from tui_debugger.sources.rank_names import megatron_numbers
from tui_debugger.sources.registry import SHOWS_NOTHING, Has, Order

if TYPE_CHECKING:
    from tui_debugger.sources.registry import Reader

ACTIVATIONS, DGRADS, WGRADS, PARAMS = "activations", "dgrads", "wgrads", "params"
KINDS: Final = (ACTIVATIONS, DGRADS, WGRADS, PARAMS)
"""The kinds of tensors that are saved, in the order in which a step makes them."""
TOKENS: Final = "tokens_per_expert"
ITERATION: Final = re.compile(r"iter_(\d{7,18})")
FILE: Final = ".pth"
"""The suffix of the file of a rank: ``mp_rank_01_001.pth``."""
_LEVELS_UP: Final = 3


def _holds(directory: str) -> bool:
    """Whether a file of a kind and an iteration lies below a directory."""
    return any(
        file.endswith(FILE) and megatron_numbers(file.removesuffix(FILE))
        for kind in KINDS
        for name in names_in(f"{directory}/{kind}")
        if ITERATION.fullmatch(name)
        for file in names_in(f"{directory}/{kind}/{name}")
    )


def _around(start: Path) -> Path | None:
    """The dump that a directory is, or in whose directory of a kind it lies."""
    if _holds(os.fspath(start)):
        return start
    for place in list(start.parents)[: _LEVELS_UP - 1]:
        if start.relative_to(place).parts[0] in (*KINDS, TOKENS) and _holds(os.fspath(place)):
            return place
    return None


READER: Final[Reader] = NamesReader(
    name="Megatron-LM",
    looked_for="activations, dgrads, wgrads or params of Megatron-LM (wgrads/iter_0000001/mp_rank_00.pth)",
    source="tui_debugger.sources.megatron.source:MegatronSource",
    holds=_holds,
    around=_around,
    shows=replace(
        SHOWS_NOTHING,
        values=Has.YES,
        order=Order.EXECUTION,
        gradients=Has.YES,
        record=(
            "pretrain_gpt.py ... --save run --save-activations-interval 1",
            "  --save-dgrads-interval 1 --save-wgrads-interval 1",
        ),
        tensors_advice="Megatron-LM: --save-activations-interval 1 and --save-dgrads-interval 1, which save those of "
        "linear modules; msprobe records the others",
        limits=("last micro-batch: of activations and their gradients the earlier ones were not saved",),
    ),
)
