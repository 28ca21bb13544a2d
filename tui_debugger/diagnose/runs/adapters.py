"""Low-rank updates of weights (LoRA) that one run keeps beside the weights and the other has merged.

A merged weight is the base plus a factor times the product of two small matrices. Most weights share one factor, which
values prove; a weight with another factor was merged differently, twice or not at all.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

import numpy as np

from tui_debugger.arrays import Array
from tui_debugger.diagnose.runs.conversions import WeightConversion, is_near
from tui_debugger.diagnose.runs.distance import Distance, distance, unit_of
from tui_debugger.diagnose.runs.kinds import kind_of_difference
from tui_debugger.diagnose.runs.scaled import Wide
from tui_debugger.stats.dtypes import name_of

_DOWN: Final = re.compile(r"(?P<module>.+)\.lora_A(?P<adapter>(?:\.[^.]+)?)\.weight")
_MODEL: Final = "base_model.model."
"""The prefix of names in PEFT models."""
_UNSURE: Final = 6.0
"""Standard deviations that a factor may be off."""
_PROVEN: Final = 0.5
"""The part of the weights that have to share one factor."""


class Adapter(NamedTuple):
    """The names of a base and its update in one run, and of the merged weight in the other."""

    base: str
    down: str
    up: str
    merged: str


def adapters(names: Iterable[str], others: Iterable[str]) -> list[Adapter]:
    """Returns the updates among a run's ``names``, with the weights that they may have made among ``others``."""
    own, found = set(names), []
    there = {name.removeprefix(_MODEL): name for name in others if ".lora_" not in name}
    for name in sorted(own):
        if (match := _DOWN.fullmatch(name)) is None:
            continue
        module, up = match["module"], f"{match['module']}.lora_B{match['adapter']}.weight"
        plain = module.removeprefix(_MODEL)
        bases = (f"{of}{end}" for end in (".base_layer.weight", ".weight") for of in (module, plain))
        base = next((each for each in bases if each in own), "")
        merged = there.get(f"{plain}.weight", "")
        if base and merged and up in own:
            found.append(Adapter(base, name, up, merged))
    return found


def merged_weights(kept: Mapping[str, Array], other: Mapping[str, Array], side: int) -> Iterator[WeightConversion]:
    """Yields the merged weights of run ``side``, proven by values; ``kept`` are the weights of the run with updates."""
    tried = (_Merge(each, kept, other, side) for each in adapters(kept, other))
    known = [each for each in tried if each.fits and each.size]
    proven = [each for each in known if is_near(each.apart(each.factor))]
    for one in proven:
        alike = sorted(each.factor for each in proven if abs(each.factor - one.factor) <= each.unsure)
        if len(alike) > _PROVEN * len(known) and abs(one.factor) > one.unsure:
            yield from (each.judged(alike[len(alike) // 2]) for each in known)
            return


class _Merge:
    """A weight that may be the base plus ``factor`` (by least squares, give or take ``unsure``) times an update.

    ``size`` is the squared norm of the update.
    """

    def __init__(self, of: Adapter, kept: Mapping[str, Array], other: Mapping[str, Array], side: int) -> None:
        self._of, self._side = of, side
        self._base, self._held = kept[of.base], other[of.merged]
        types = name_of(self._base.dtype), name_of(self._held.dtype)
        self._types = types if side else (types[1], types[0])
        self._down, self._up = down, up = kept[of.down], kept[of.up]
        self.fits = self._base.ndim == down.ndim == up.ndim == 2 and self._base.shape == self._held.shape
        self.fits = self.fits and (*up.shape[:1], *down.shape[1:], up.shape[1]) == (*self._base.shape, down.shape[0])
        self.size = 0.0
        if not self.fits:
            return
        update = self._update()
        self.size = float(np.vdot(update, update))
        if self.size:
            held = self._held.astype(np.float64)
            self.factor = float(np.vdot(held - self._base, update)) / self.size
            errors = float(np.linalg.norm(held * update)) * unit_of(self._types)
            self.unsure = _UNSURE * errors / self.size + 1e-6 * abs(self.factor)

    def _update(self) -> Wide:
        return self._up.astype(np.float64) @ self._down.astype(np.float64)

    def _both(self, factor: float) -> tuple[Array, Array]:
        """Returns the merged weight and what it should be, the first run's first."""
        expected = (self._base.astype(np.float64) + factor * self._update()).astype(np.float32)
        return (expected, self._held) if self._side else (self._held, expected)

    def apart(self, factor: float) -> Distance:
        return distance(*self._both(factor), self._types)

    def judged(self, factor: float) -> WeightConversion:
        of, apart, here, there = self._of, self.apart(factor), "BA"[self._side], "AB"[self._side]
        sources = of.base, of.down, of.up
        if is_near(apart) and abs(self.factor - factor) <= self.unsure:
            text = f"made of {of.base} + {factor:.4g} × the product of {of.up} and {of.down}"
            return WeightConversion(of.merged, sources, "", text, apart, self._side)
        if is_near(self.apart(self.factor)):
            text = f"{of.merged} of {there} has its update {self.factor:.4g} times, most others {factor:.4g} times"
        else:
            kind = kind_of_difference(*self._both(factor), apart.unit)[1]
            text = f"{of.merged} of {there} is not what {of.base} of {here} and its update make: {kind}"
        return WeightConversion(of.merged, sources, of.base, text, apart, self._side)
