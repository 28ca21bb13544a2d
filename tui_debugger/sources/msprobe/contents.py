"""Tells tensors with NaN apart by their values: one NaN hides all recorded statistics of a tensor."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Final

import numpy as np

from tui_debugger.arrays import Int64, Mask
from tui_debugger.errors import TdbgError
from tui_debugger.model import ReadSpec, Side
from tui_debugger.sources.msprobe.calls import StepCalls
from tui_debugger.sources.msprobe.layout import TENSORS
from tui_debugger.stats.digests import digest_of
from tui_debugger.stats.npy import open_array

_MOST_BYTES: Final = 1 << 30
"""Limit of bytes that are read per step for this; later tensors stay without an edge."""
_MOST_ELEMENT_BYTES: Final = 8


def how_to_read(name: str, dtype: str) -> ReadSpec:
    """How to read a file with values, without its path; ``dtype`` is the one in the calls."""
    if name.endswith(".npy"):
        return ReadSpec("", dtype=dtype if dtype.startswith(("bfloat", "float8", "int4")) else "")
    return ReadSpec("", "pt")


def contents_of_nan(step: StepCalls, directory: str, asked: Mask) -> Int64:
    """Numbers that are equal for tensors with NaN that have the same elements; 0 for all other tensors.

    A tensor of equal elements has 0, since another such tensor need not be the same. ``asked``: the inputs whose
    producers are wanted.
    """
    found = np.zeros(len(step), np.int64)
    may_be_read = step.nan & step.has_file if len(step.files) else np.zeros(len(step), np.bool_)
    if not may_be_read.any():
        return found
    sizes = step.sizes()
    kind = np.unique(np.stack([step.dtype.astype(np.int64), sizes]), axis=1, return_inverse=True)[1].reshape(-1)
    is_output = step.side == int(Side.OUTPUT)
    both = np.intersect1d(kind[may_be_read & is_output], kind[may_be_read & ~is_output & asked])
    wanted = np.flatnonzero(may_be_read & (is_output | asked) & np.isin(kind, both))
    wanted = wanted[np.argsort(step.call[wanted], kind="stable")]
    left = _MOST_BYTES
    for at in wanted.tolist():
        left -= int(sizes[at]) * _MOST_ELEMENT_BYTES
        if left < 0:
            break
        found[at] = _content(step, directory, at)
    return found


def _content(step: StepCalls, directory: str, at: int) -> int:
    name = os.fsdecode(step.files[at])
    spec = how_to_read(name, step.dtypes[int(step.dtype[at])])
    try:
        values = open_array(replace(spec, path=f"{directory}/{TENSORS}/{name}"))
        digest, constant = digest_of(values, values.dtype.str, values.dtype.name)
    except (TdbgError, OSError, ValueError, TypeError):  # its reader reports it
        return 0
    return 0 if constant else int.from_bytes(digest[:8], "little", signed=True)
