"""The ranks in names of files and directories: the only place that reads them in trees of any program.

``rank_3``, ``rank-3`` and ``rank3`` name a rank at the beginning of a name. After other words they do so where other
names differ in the number only and rank 0 is among them: ``grads_rank1`` beside ``grads_rank0``, but not ``low_rank_8``
beside ``low_rank_4``. The same holds for ``worker1``, ``gpu1`` and ``proc1``. ``model_world_size_4_rank_1`` and
``model_rank_1_of_4`` tell the number of ranks, too.

Other names tell places along axes: ``dp1_tp0``, DeepSpeed's ``zero_pp_rank_1_mp_rank_00``, Megatron's
``mp_rank_01_001``. The number of a rank follows from all places (see ``number_places``).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

Places = tuple[tuple[str, int], ...]
"""The number of a rank along each axis that its name tells of, sorted by axis."""

UNNAMED: Final = "second number"
"""The axis of the second of two numbers in Megatron's names: the stage of a pipeline, or the experts."""
ZERO: Final = "zero"
"""The axis along which DeepSpeed's ZeRO gives every rank another part of a flat tensor."""
_EDGE: Final = r"(?:^|(?<=[._\- ]))"
_END: Final = r"(?=$|[._\- ])"
_MARK: Final = r"[_\-=]?"
_SHARES: Final = (
    re.compile(
        rf"{_EDGE}world_size{_MARK}(?P<count>\d{{1,9}})[._\- ]rank{_MARK}(?P<rank>\d{{1,9}}){_END}", re.IGNORECASE
    ),
    re.compile(rf"{_EDGE}rank{_MARK}(?P<rank>\d{{1,9}})[._\- ]of[._\- ](?P<count>\d{{1,9}}){_END}", re.IGNORECASE),
)
"""The number of ranks, and of this rank."""
_RANK: Final = re.compile(rf"{_EDGE}rank{_MARK}(\d{{1,9}}){_END}", re.IGNORECASE)
_WORKER: Final = re.compile(rf"{_EDGE}(?:worker|gpu|proc){_MARK}(\d{{1,9}}){_END}", re.IGNORECASE)
_ZERO: Final = re.compile(rf"^(?:(?:bf16|fp16)_)?zero_pp_rank_(\d{{1,9}})_mp_rank_(\d{{1,9}}){_END}")
_MEGATRON: Final = re.compile(rf"^mp_rank_(\d{{2,9}})(?:_(\d{{3,9}}))?(?:_(\d{{3,9}}))?{_END}")
_FOLDER: Final = re.compile(r"(?:rank_?|worldsize\d+_global_rank)(\d{1,9})|rank")
_CONSOLIDATED: Final = re.compile(r"(?<=^consolidated)\.(\d\d)$")
"""The part of one tensor-parallel rank, in names of Meta's models."""
_AXIS: Final = rf"(?:dp|tp|pp|cp|ep|sp)(?:_rank)?{_MARK}\d{{1,6}}"
_AXES: Final = re.compile(rf"{_EDGE}{_AXIS}(?:[._\- ]?{_AXIS})*{_END}", re.IGNORECASE)
_ONE_AXIS: Final = re.compile(rf"(dp|tp|pp|cp|ep|sp)(?:_rank)?{_MARK}(\d{{1,6}})", re.IGNORECASE)
_OUTER_FIRST: Final = ("pp", "dp", ZERO, "cp", UNNAMED, "ep", "sp", "tp")
"""The axes in the order in which launchers number ranks: neighbours share a tensor."""


@dataclass(frozen=True, slots=True)
class RankName:
    """The rank that a name tells of."""

    start: str
    end: str
    rank: int | None = None
    """Number of the rank; None where the name tells places."""
    places: Places = ()
    count: int = 0
    """Number of ranks; 0: the name does not tell."""
    sure: bool = True
    """The name alone tells; else only beside others: see ``confirmed``."""

    @property
    def rest(self) -> str:
        return (self.start.rstrip("._- ") + "." + self.end.lstrip("._- ")).strip(".")


def read_rank(name: str, *, numbered: bool = False) -> RankName | None:
    """Returns the rank that a name (of a directory, or of a file without suffix) tells of, else None.

    ``numbered``: a step or an epoch was taken out of the name before.
    """
    if (match := read_share(name)) is not None:
        return _named(name, match, rank=int(match["rank"]), count=int(match["count"]))
    if (match := _CONSOLIDATED.search(name)) is not None:
        return _named(name, match, rank=int(match[1]))
    along = _read_places(name)
    if along is None and (match := _RANK.search(name)) is not None:
        return _named(name, match, rank=int(match[1]), sure=numbered or not match.start())
    if along is None and (match := _WORKER.search(name)) is not None:
        return _named(name, match, rank=int(match[1]), sure=False)
    return along


def read_share(name: str) -> re.Match[str] | None:
    """Finds where a name tells the number of a rank (group ``rank``) and of all ranks (``count``)."""
    return next((match for pattern in _SHARES if (match := pattern.search(name)) is not None), None)


def _read_places(name: str) -> RankName | None:
    if (match := _ZERO.match(name)) is not None:
        return _named(name, match, places=((ZERO, int(match[1])), ("tp", int(match[2]))))
    if (match := _MEGATRON.match(name)) is not None:
        numbers = _numbers_of(match)
        axes = ("tp", UNNAMED) if len(numbers) == 2 else ("tp", "pp", "ep")
        return _named(name, match, places=tuple(zip(axes, numbers, strict=False)))
    if (match := _AXES.search(name)) is not None:
        places = tuple((axis.lower(), int(number)) for axis, number in _ONE_AXIS.findall(match[0]))
        return _named(name, match, places=places, sure=len(places) > 1) if len(dict(places)) == len(places) else None
    return None


def rank_of_folder(name: str) -> int | None:
    """The rank of a directory whose name is nothing but a rank; ``rank`` (msprobe, one process) is rank 0."""
    match = _FOLDER.fullmatch(name)
    return None if match is None else int(match[1] or 0)


def megatron_numbers(name: str) -> tuple[int, ...]:
    """The numbers in Megatron's name of a rank (``mp_rank_01_001``); empty for another name."""
    match = _MEGATRON.fullmatch(name)
    return () if match is None else _numbers_of(match)


def _numbers_of(match: re.Match[str]) -> tuple[int, ...]:
    return tuple(int(each) for each in match.groups() if each is not None)


def confirmed(names: Sequence[RankName | None]) -> list[RankName | None]:
    """Keeps the ranks of names in one directory that are sure, alone or by the names beside them; else None."""
    beside: dict[tuple[str, str, tuple[str, ...]], set[tuple[int, ...]]] = {}
    for each in names:
        if each is not None and not each.sure:
            beside.setdefault(_alike(each), set()).add(_numbers(each))
    real = {alike for alike, found in beside.items() if len(found) > 1 and any(not any(each) for each in found)}
    return [each if each is not None and (each.sure or _alike(each) in real) else None for each in names]


def number_places(found: Iterable[Places]) -> dict[Places, int]:
    """Numbers ranks by their places, as launchers count them, without gaps."""

    def order(places: Places) -> tuple[int, ...]:
        at = dict(places)
        return tuple(at.get(axis, 0) for axis in _OUTER_FIRST)

    numbers = {at: number for number, at in enumerate(sorted({order(places) for places in found}))}
    return {places: numbers[order(places)] for places in found}


def sized_places(places: Mapping[int, Places]) -> dict[int, dict[str, tuple[int, int]]]:
    """By rank: place along each axis and size of the axis; empty where an axis has no name."""
    axes = {axis for of in places.values() for axis, _ in of}
    if UNNAMED in axes:
        return {}
    sizes = {axis: 1 + max(dict(of).get(axis, 0) for of in places.values()) for axis in axes}
    return {rank: {axis: (dict(of).get(axis, 0), size) for axis, size in sizes.items()} for rank, of in places.items()}


def _named(
    name: str, match: re.Match[str], rank: int | None = None, places: Places = (), count: int = 0, *, sure: bool = True
) -> RankName:
    return RankName(name[: match.start()], name[match.end() :], rank, tuple(sorted(places)), count, sure)


def _alike(found: RankName) -> tuple[str, str, tuple[str, ...]]:
    return found.start, found.end, tuple(axis for axis, _ in found.places)


def _numbers(found: RankName) -> tuple[int, ...]:
    return (found.rank,) if found.rank is not None else tuple(number for _, number in found.places)
