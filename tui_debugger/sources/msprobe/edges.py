"""Infers the data flow between the calls of a step: the producer of each input, which msprobe does not record.

An input's producer is the nearest earlier output with equal element type, shape, maximum, minimum, mean and norm (and
digest, if recorded). Views that were not recorded change the shape only. Zeros, and tensors of one value, equal too
many others to tell anything. One NaN hides the statistics of a tensor: then equal values tell, where there are files. A
module depends on the calls inside it, the backward of a call on the results of its forward.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt

from tui_debugger.arrays import Array, Float64, Int32, Int64, Mask
from tui_debugger.errors import TdbgError
from tui_debugger.model import ReadSpec, Side
from tui_debugger.sources.base import ZEROS_DIGEST
from tui_debugger.sources.msprobe.calls import StepCalls
from tui_debugger.sources.msprobe.layout import TENSORS
from tui_debugger.stats.digests import digest_of
from tui_debugger.stats.npy import open_array

UInt64 = npt.NDArray[np.uint64]
_TOLERANCE: Final = 1e-5
"""Relative difference of means and norms of the same elements in another order."""
_PRIME: Final = np.uint64(0x9E3779B97F4A7C15)
_BEFORE_ALL: Final = -8
_MOST_BYTES: Final = 1 << 30
"""Limit of bytes that are read per step to tell tensors with NaN apart; later tensors stay without an edge."""
_MOST_ELEMENT_BYTES: Final = 8
_Pairs = tuple[Int64, Int64, Int64]
"""(consumer, producer, slot of the producer) as columns."""


@dataclass(frozen=True, slots=True)
class InferredEdges:
    """Input ``position[i]`` of ``node[i]`` is output ``slot[i]`` of ``producer[i]``."""

    node: Int64
    position: Int64
    producer: Int64
    """``node`` and ``producer`` are numbers of ``StepCalls.nodes``; -1: unknown."""
    slot: Int64
    inputs: Int64
    """Number of inputs of every node."""


def infer_edges(step: StepCalls) -> InferredEdges:
    """Finds the producers of the inputs of a step's nodes, as far as tensors show them."""
    inputs = np.zeros(len(step.nodes), np.int64)
    is_input = step.side == int(Side.INPUT)
    np.maximum.at(inputs, step.node[is_input], step.slot[is_input].astype(np.int64) + 1)
    for row, place, _ in step.scalars:
        inputs[row] = max(inputs[row], place + 1)
    made = _producers(step)
    at = np.flatnonzero(is_input & (made >= 0))[::-1]  # of several rounds the first one counts: it is set last
    node, slot = step.node.astype(np.int64), step.slot.astype(np.int64)
    found = _EdgeColumns(node[at], slot[at], node[made[at]], slot[made[at]])
    links = np.array(step.links, np.int64).reshape(-1, 3)
    found = found.with_more(links[:, 0], links[:, 1], links[:, 2], np.zeros(len(links), np.int64))
    consumer, producer, output = _made_of(step, made)
    first = np.searchsorted(consumer, consumer)
    position = inputs[consumer] + np.arange(len(consumer)) - first
    np.maximum.at(inputs, consumer, position + 1)
    found = found.with_more(consumer, position, producer, output)
    return InferredEdges(found.node, found.position, found.producer, found.slot, inputs)


def _made_of(step: StepCalls, made: Int64) -> _Pairs:
    """Dependencies of nodes besides their inputs, sorted by consumer, each once."""
    summed = np.array(step.summed, np.int64)
    itself = summed, np.full(len(summed), -1, np.int64), np.zeros(len(summed), np.int64)
    columns = zip(_inside(step, made), _ahead(step), itself, strict=True)
    pairs = np.unique(np.stack([np.concatenate(each) for each in columns]), axis=1)
    pairs = pairs[:, pairs[0] != pairs[1]]
    return pairs[0], pairs[1], pairs[2]


@dataclass(frozen=True, slots=True)
class _EdgeColumns:
    """Edges as columns; of several for one input the last one counts."""

    node: Int64
    position: Int64
    producer: Int64
    slot: Int64

    def with_more(self, *more: Int64) -> _EdgeColumns:
        mine = (self.node, self.position, self.producer, self.slot)
        return _EdgeColumns(*(np.concatenate(each).astype(np.int64) for each in zip(mine, more, strict=True)))


def _producers(step: StepCalls) -> Int64:
    """Of every input the equal output; of a module's output the equal output inside it; else -1."""
    mask = _identifying(step)
    call = step.call.astype(np.int64)
    is_output = step.side == int(Side.OUTPUT)
    parameter = call < 0
    of = np.maximum(call, 0)
    first = step.first[of].astype(np.int64) if step.calls else of
    is_module = step.module[of] & ~parameter if step.calls else np.zeros(len(step), np.bool_)
    begins, ends = 4 * first - 1, np.where(parameter, _BEFORE_ALL, 4 * call + 2)
    asks = (~is_output | (is_module & (first < call))) & mask
    asked_at = np.where(is_output, 4 * call + 1, begins)
    exact = _nearest(_key(step, exact=True), ends, is_output & mask, asked_at, asks)
    rest = asks & (exact < 0)
    near = _nearest(_key(step, exact=False), ends, is_output & mask, asked_at, rest)
    close = (near >= 0) & _close(step.mean, step.norm, near)
    found = np.where(exact >= 0, exact, np.where(close, near, -1))
    outside = is_output & (found >= 0) & (ends[found] < begins)
    found[outside] = -1  # a module that returns its input: the edge of that input is enough
    return found


def _identifying(step: StepCalls) -> Mask:
    """Mask of tensors that differ from others: of several values, and no numbers or flags without a mean or digest."""
    sizes = step.sizes()
    varied = step.known & ~step.nan & (step.largest != step.smallest)
    with np.errstate(invalid="ignore"):
        scalar = (sizes == 1) & np.isfinite(step.largest) & (step.largest != np.round(step.largest))
    measured = ~np.isnan(step.mean) | ~np.isnan(step.norm)
    mask: Mask = (varied & (sizes > 1)) | (step.known & scalar)
    hashed: Mask = np.zeros(len(step), np.bool_)
    if step.hashes is not None:
        hashed = (step.hashes != 0) & (step.hashes != ZEROS_DIGEST)
    mask = (mask & (measured | hashed)) | (~step.known & hashed & (sizes > 1))
    if step.contents is not None:
        mask |= step.contents != 0
    return mask & (sizes > 0)


def _key(step: StepCalls, *, exact: bool) -> UInt64:
    """Equal numbers for tensors that look the same."""
    columns: list[Array] = [step.dtype, step.sizes()]
    numbers: list[Float64] = [step.largest, step.smallest]
    if exact:
        columns.append(step.shape)
        numbers += [step.mean, step.norm]
        if step.hashes is not None:
            columns.append(step.hashes)
    if step.contents is not None:
        columns.append(step.contents)
    bits = [each.astype(np.int64).view(np.uint64) for each in columns]
    bits += [np.ascontiguousarray(each + 0.0).view(np.uint64) for each in numbers]  # -0 is 0
    key: UInt64 = np.zeros(len(step), np.uint64)
    for each in bits:
        key = (key ^ each) * _PRIME
        key ^= key >> np.uint64(29)
    return key


def _nearest(key: UInt64, ends: Int64, makes: Mask, asked_at: Int64, asks: Mask) -> Int64:
    """Of every tensor that ``asks`` the newest earlier one of its key that ``makes`` it; -1 without one."""
    found = np.full(len(key), -1, np.int64)
    who, made = np.flatnonzero(asks), np.flatnonzero(makes)
    keys = np.concatenate([key[made], key[who]])
    times = np.concatenate([ends[made], asked_at[who]])
    order = np.lexsort((times, keys))
    is_made = order < len(made)
    last = np.maximum.accumulate(np.where(is_made, np.arange(len(order)), -1))
    asking = np.flatnonzero(~is_made & (last >= 0))
    producer, query = order[last[asking]], order[asking]
    same = keys[producer] == keys[query]
    found[who[query[same] - len(made)]] = made[producer[same]]
    return found


def _close(mean: Float64, norm: Float64, other: Int64) -> Mask:
    """Mask of tensors with the mean and norm of another one, up to the order of summation."""
    result = np.ones(len(mean), np.bool_)
    scale = np.abs(norm) * _TOLERANCE
    with np.errstate(invalid="ignore"):
        for column in (mean, norm):
            theirs = column[other]
            same = (column == theirs) | (np.isnan(column) & np.isnan(theirs)) | (np.abs(column - theirs) <= scale)
            result &= same
    return result


def _inside(step: StepCalls, made: Int64) -> _Pairs:
    """Dependencies of modules: the inner output that theirs equals, else all inner outputs that no inner call reads."""
    call, is_output = step.call, step.side == int(Side.OUTPUT)
    of = np.maximum(call, 0)
    if not step.calls:
        return (np.zeros(0, np.int64),) * 3
    outer = is_output & (call >= 0) & step.module[of]
    matched = np.flatnonzero(outer & (made >= 0))
    unsure = np.ones(step.calls, np.bool_)
    unsure[call[matched]] = False
    unsure[call[outer & (made < 0)]] = True
    around = np.where(call >= 0, step.parent[of], -1)
    reader = np.full(len(step), step.calls, np.int64)
    read = np.flatnonzero(~is_output & (made >= 0))
    np.minimum.at(reader, made[read], call[read])
    used = reader < around  # an output that another inner call reads is in that call's output
    inner = np.flatnonzero(is_output & (around >= 0) & unsure[np.maximum(around, 0)] & ~used)
    consumer = np.concatenate([step.node[matched], step.call_node[around[inner]]]).astype(np.int64)
    source = np.concatenate([made[matched], inner])
    known = consumer >= 0
    return consumer[known], step.node[source][known].astype(np.int64), step.slot[source][known].astype(np.int64)


def _ahead(step: StepCalls) -> _Pairs:
    """Dependencies of backward calls besides gradients: the outputs of their forward."""
    forward = np.array([node.forward for node in step.nodes], np.int64)
    backward = np.flatnonzero(forward >= 0)
    by_forward = backward[np.argsort(forward[backward], kind="stable")]
    outputs = np.flatnonzero((step.side == int(Side.OUTPUT)) & (step.round <= 1))
    starts = np.searchsorted(forward[by_forward], step.node[outputs], side="left")
    counts = np.searchsorted(forward[by_forward], step.node[outputs], side="right") - starts
    row = np.repeat(outputs, counts)
    place: Int32 = (np.arange(len(row)) - np.repeat(np.cumsum(counts) - counts, counts)).astype(np.int32)
    consumer = by_forward[np.repeat(starts, counts) + place]
    return consumer, step.node[row].astype(np.int64), step.slot[row].astype(np.int64)


# -- steps after the first one ----------------------------------------------------------------------------


def written_in(step: StepCalls, producer: Int64, slot: Int64, readers: Int64) -> Int64:
    """Tensors of a step that are given outputs of nodes, in the micro-batch of their readers; -1: not recorded.

    ``producer`` -1 is no node; ``readers`` are the tensors whose producers are asked for.
    """
    outputs = np.flatnonzero(step.side == int(Side.OUTPUT))
    found = np.full(len(producer), -1, np.int64)
    if not len(outputs) or not len(producer):
        return found
    for number in (step.round[readers].astype(np.int64), np.zeros(len(readers), np.int64)):
        keys = _places(step.node[outputs], step.slot[outputs], step.round[outputs])
        by = np.argsort(keys, kind="stable")
        wanted = _places(np.maximum(producer, 0), slot, number)
        at = np.minimum(np.searchsorted(keys[by], wanted), len(by) - 1)
        same = (keys[by][at] == wanted) & (producer >= 0) & (found < 0)
        found[same] = outputs[by[at[same]]]
    return found


def _places(node: Array, slot: Array, number: Array) -> Int64:
    places: Int64 = (number.astype(np.int64) << 48) | (node.astype(np.int64) << 16) | slot.astype(np.int64)
    return places


def differ(step: StepCalls, one: Int64, other: Int64) -> Mask:
    """Mask of pairs that are certainly different tensors: their sizes, extremes or NaN differ."""
    sizes = step.sizes()
    unlike = (sizes[one] != sizes[other]) | (step.nan[one] != step.nan[other]) | (step.dtype[one] != step.dtype[other])
    for column in (step.largest, step.smallest):
        known = ~(np.isnan(column[one]) | np.isnan(column[other]))
        unlike |= known & (column[one] != column[other])
    result: Mask = unlike & step.known[one] & step.known[other]
    return result


def infer_producers(step: StepCalls, inputs: Int64) -> Int64:
    """Producers of some inputs in this step; for inputs with NaN the newest output of their shape with NaN."""
    found = _producers(step)[inputs]
    nan = inputs[(found < 0) & step.nan[inputs]]
    if len(nan):
        asks = np.zeros(len(step), np.bool_)
        asks[nan] = True
        call = step.call.astype(np.int64)
        first = step.first[np.maximum(call, 0)].astype(np.int64)
        makes = (step.side == int(Side.OUTPUT)) & step.nan & (call >= 0)
        key = step.shape.astype(np.uint64) * _PRIME + step.dtype.astype(np.uint64)
        found = np.where(found >= 0, found, _nearest(key, 4 * call + 2, makes, 4 * first - 1, asks)[inputs])
    return found


# -- tensors with NaN, whose recorded statistics are hidden ---------------------------------------------


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
