"""Weights, their gradients and their values of the step before: looked at together, when a step is over."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

import torch

from tui_debugger.torch import quick
from tui_debugger.torch.captures import Capture, Step, measure
from tui_debugger.torch.elements import dense, is_simple, local, meta_of, numeric, readable
from tui_debugger.torch.internals import copy_all, differences, version_of
from tui_debugger.torch.plans import Plan, Plans, Quick

SUMMED: Final = 1e-3
"""What a sum that is made in float32 may be off by, as a part of it."""
LOOSE: Final = 1.05
"""How far apart the bounds of Σ|x| may be until it is measured again."""
_MEASURED: Final = Quick.EXTREMES | Quick.TOTAL | Quick.ZEROS
CHUNK: Final = 1 << 24
"""Elements of weights that are compared with the step before at a time: what bounds the memory for differences."""


class Previous:
    """Copies of weights as they were before the step, of those that watchpoints compare (and all at the beginning)."""

    def __init__(self) -> None:
        """Has none."""
        self._values: dict[str, torch.Tensor] = {}
        self._sums: dict[str, tuple[float, float]] = {}

    def get(self, name: str) -> torch.Tensor | None:
        """The values of the step before."""
        return self._values.get(name)

    def sum_of(self, name: str) -> tuple[float, float] | None:
        """What Σ|x| of these values lies between; None where it has to be measured."""
        return self._sums.get(name)

    def follow(self, step: Step) -> None:
        """Σ|x| of what the weights are now: it cannot have changed by more than Σ|cur − prev|. Saves measuring it."""
        sums: dict[str, tuple[float, float]] = {}
        for capture in step.entries:
            if isinstance(capture, Capture) and capture.difference and step.fetched is not None:
                changed = sum(float(step.fetched.all(place)[0]) for place in capture.difference)
                low, high = capture.between or (math.inf, -math.inf)
                if capture.reference:
                    measured = sum(float(step.fetched.all(place)[0]) for place in capture.reference)
                    low, high = measured * (1 - SUMMED), measured * (1 + SUMMED)
                low, high = low - changed * (1 + SUMMED), high + changed * (1 + SUMMED)
                if 0 < low <= high <= low * LOOSE and "16" not in capture.meta.dtype:
                    sums[capture.name] = low, high
        self._sums = sums

    def clear(self) -> None:
        """Lets go of all."""
        self._values.clear()
        self._sums.clear()

    def keep(self, weights: Iterable[tuple[str, torch.Tensor]]) -> None:
        """Keeps these as they are now, and no others. Copies that fit are written over."""
        kept: dict[str, torch.Tensor] = {}
        targets: list[torch.Tensor] = []
        sources: list[torch.Tensor] = []
        for name, tensor in weights:
            now, old = dense(local(tensor)), self._values.get(name)
            if old is not None and (old.shape, old.dtype, old.device) == (now.shape, now.dtype, now.device):
                kept[name] = old
                targets.append(old)
                sources.append(now)
            else:
                kept[name] = now.clone(memory_format=torch.contiguous_format)
        self._values = kept
        for group in _alike(targets):
            copy_all([targets[at] for at in group], [sources[at] for at in group])


@dataclass(slots=True)
class Grouping:
    """Tensors by what is looked at: those that one number decides on together, and the others one by one.

    Attributes:
        groups: plan, names and tensors of one element type and device.
        others: by node name.
    """

    groups: list[tuple[Plan, list[str], list[torch.Tensor]]] = field(default_factory=list)
    others: list[tuple[str, torch.Tensor]] = field(default_factory=list)


class Lasting:
    """Weights and optimizer state: mostly the same tensors in every step, grouped anew only when they are not."""

    def __init__(self) -> None:
        """Knows none."""
        self._plans: Plans | None = None
        self._tensors: list[tuple[str, torch.Tensor]] = []
        self._grouping = Grouping()

    def grouped(self, tensors: list[tuple[str, torch.Tensor]], plans: Plans) -> Grouping:
        """How these are grouped."""
        same = self._plans is plans and len(tensors) == len(self._tensors)
        same = same and all(
            new[1] is old[1] and new[0] == old[0] for new, old in zip(tensors, self._tensors, strict=True)
        )
        if not same:
            self._plans, self._tensors, self._grouping = plans, tensors, grouping(tensors, plans)
        return self._grouping

    def clear(self) -> None:
        """Holds none."""
        self._plans, self._tensors, self._grouping = None, [], Grouping()


def grouping(tensors: Iterable[tuple[str, torch.Tensor]], plans: Plans) -> Grouping:
    """Groups tensors by their plans, element types and devices."""
    groups: dict[tuple[int, torch.dtype, torch.device], tuple[Plan, list[str], list[torch.Tensor]]] = {}
    others: list[tuple[str, torch.Tensor]] = []
    for name, tensor in tensors:
        plan = plans.of(name)
        if plan is not None and plan.one_number and is_simple(tensor):
            key = (id(plan), tensor.dtype, tensor.device)
            _, names, members = groups.setdefault(key, (plan, [], []))
            names.append(name)
            members.append(tensor)
        elif readable(tensor):
            others.append((name, tensor))
    return Grouping(list(groups.values()), others)


def see_all(
    step: Step, tensors: Grouping | Iterable[tuple[str, torch.Tensor]], plans: Plans, previous: Previous | None
) -> None:
    """Adds a line for each tensor, and begins its quick numbers: as few kernels as there can be.

    Args:
        step: where lines go.
        tensors: weights or gradients, by node name or grouped already. They live as long as the step: holding them is
            for nothing.
        plans: what is watched.
        previous: values of the step before; None for what is never compared.
    """
    grouped = tensors if isinstance(tensors, Grouping) else grouping(tensors, plans)
    summed: dict[int, list[tuple[Capture, torch.Tensor]]] = {1: [], 2: []}
    changed: list[tuple[Capture, torch.Tensor, torch.Tensor]] = []
    for name, tensor in grouped.others:
        plan, values = plans.of(name), local(tensor)
        capture = Capture(name, 0, meta_of(tensor), plan, values, version_of(values))
        step.add(capture)
        if previous is not None:
            capture.previous = previous.get(name)
        if plan is None or not numeric(tensor) or (values.is_complex() and plan.need.previous):
            continue  # a complex weight that is compared is looked at exactly: |cur| − |prev| tells too little
        if plan.many & _MEASURED or plan.ranges:
            measure(capture, values, step.waiting, plan, many=True)
        x = quick.plain(dense(values))
        for order, kind in ((1, Quick.MAGNITUDE), (2, Quick.ENERGY)):
            if plan.many & kind:
                summed[order].append((capture, x))
        if plan.need.previous and capture.previous is not None and capture.previous.shape == values.shape:
            changed.append((capture, x, quick.plain(capture.previous)))
            capture.between = previous.sum_of(name) if previous is not None else None
    for plan, names, members in grouped.groups:
        with torch.no_grad():
            step.note_all(names, members, plan, quick.norms(members, 2))
    for order, lines in summed.items():
        for (capture, _), norm in zip(lines, quick.norms([x for _, x in lines], order), strict=True):
            setattr(capture, "magnitude" if order == 1 else "energy", step.waiting.add(norm))
    _compare(changed, step)


def _compare(changed: Sequence[tuple[Capture, torch.Tensor, torch.Tensor]], step: Step) -> None:
    """Σ|cur − prev| and Σ|prev|, in groups and pieces of a bounded size."""
    pieces = [piece for each in changed for piece in _pieces(*each)]
    difference: dict[int, list[int]] = {}
    reference: dict[int, list[int]] = {}
    for group in _alike([before for _, _, before in pieces]):
        for part in _bounded(group, [before for _, _, before in pieces]):
            apart = differences([pieces[at][1] for at in part], [pieces[at][2] for at in part])
            for at, norm in zip(part, quick.magnitudes(apart), strict=True):
                difference.setdefault(id(pieces[at][0]), []).append(step.waiting.add(norm))
            unknown = [at for at in part if pieces[at][0].between is None]
            for at, norm in zip(unknown, quick.norms([pieces[at][2] for at in unknown], 1), strict=True):
                reference.setdefault(id(pieces[at][0]), []).append(step.waiting.add(norm))
    for capture, _, _ in changed:
        capture.difference = tuple(difference.get(id(capture), ()))
        capture.reference = tuple(reference.get(id(capture), ()))


def _pieces(
    capture: Capture, now: torch.Tensor, before: torch.Tensor
) -> list[tuple[Capture, torch.Tensor, torch.Tensor]]:
    if now.numel() <= CHUNK or not now.is_contiguous():
        return [(capture, now, before)]
    parts = zip(torch.split(now.view(-1), CHUNK), torch.split(before.view(-1), CHUNK), strict=True)
    return [(capture, part, other) for part, other in parts]


def _alike(tensors: Sequence[torch.Tensor]) -> list[list[int]]:
    """Numbers of the tensors that kernels take together."""
    groups: dict[tuple[torch.device, torch.dtype], list[int]] = {}
    for number, tensor in enumerate(tensors):
        groups.setdefault((tensor.device, tensor.dtype), []).append(number)
    return list(groups.values())


def _bounded(group: Sequence[int], tensors: Sequence[torch.Tensor]) -> list[list[int]]:
    """A group in parts of at most ``CHUNK`` elements (or one tensor)."""
    parts: list[list[int]] = []
    size = CHUNK + 1
    for number in group:
        size += tensors[number].numel()
        if size > CHUNK:
            parts.append([])
            size = tensors[number].numel()
        parts[-1].append(number)
    return parts
