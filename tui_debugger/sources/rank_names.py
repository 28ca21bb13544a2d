"""The ranks that names of files and directories tell of: the only place that reads them in trees of any program.

``rank_3``, ``rank-3`` and ``rank3`` name a rank at the beginning of a name. Behind other words they do where a name
beside it is the same but for its number, and rank 0 is among them: ``grads_rank1`` beside ``grads_rank0``, but not
``low_rank_8`` beside ``low_rank_4``. So does ``worker1`` beside ``worker0``. ``model_world_size_4_rank_1`` says how
many ranks there are, too.

Other names tell places along axes: ``dp1_tp0``, DeepSpeed's ``zero_pp_rank_1_mp_rank_00`` and Megatron's
``mp_rank_01_001``. Which number a rank has follows from the places of all (see ``number_places``).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

Places = tuple[tuple[str, int], ...]
"""The number of a rank along each axis that its name tells of, sorted by axis."""

UNNAMED: Final = "second number"
"""The axis of Megatron's second of two numbers: the stage of a pipeline, or the experts."""
ZERO: Final = "zero"
"""The axis along which DeepSpeed's ZeRO gives every rank another part of a flat tensor."""
_EDGE: Final = r"(?:^|(?<=[._\- ]))"
_END: Final = r"(?=$|[._\- ])"
_MARK: Final = r"[_\-=]?"
SHARE: Final = re.compile(rf"{_EDGE}world_size{_MARK}(\d{{1,9}})[._\- ]rank{_MARK}(\d{{1,9}}){_END}", re.IGNORECASE)
"""How many ranks there are, and the number of this one."""
_RANK: Final = re.compile(rf"{_EDGE}rank{_MARK}(\d{{1,9}}){_END}", re.IGNORECASE)
_WORKER: Final = re.compile(rf"{_EDGE}worker{_MARK}(\d{{1,9}}){_END}", re.IGNORECASE)
_ZERO: Final = re.compile(rf"^(?:(?:bf16|fp16)_)?zero_pp_rank_(\d{{1,9}})_mp_rank_(\d{{1,9}}){_END}")
_MEGATRON: Final = re.compile(rf"^mp_rank_(\d{{2,9}})(?:_(\d{{3,9}}))?(?:_(\d{{3,9}}))?{_END}")
_FOLDER: Final = re.compile(r"(?:rank_?|worldsize\d+_global_rank)(\d{1,9})|rank")
_CONSOLIDATED: Final = re.compile(r"(?<=^consolidated)\.(\d\d)$")
"""The part of one tensor-parallel rank, as Meta writes models."""
_AXIS: Final = rf"(?:dp|tp|pp|cp|ep|sp)(?:_rank)?{_MARK}\d{{1,6}}"
_AXES: Final = re.compile(rf"{_EDGE}{_AXIS}(?:[._\- ]?{_AXIS})*{_END}", re.IGNORECASE)
_ONE_AXIS: Final = re.compile(rf"(dp|tp|pp|cp|ep|sp)(?:_rank)?{_MARK}(\d{{1,6}})", re.IGNORECASE)
_OUTER_FIRST: Final = ("pp", "dp", ZERO, "cp", UNNAMED, "ep", "sp", "tp")
"""The axes in the order in which launchers number ranks: neighbours share a tensor."""


@dataclass(frozen=True, slots=True)
class RankName:
    """The rank that a name tells of.

    Attributes:
        start, end: what stands before and behind it.
        rank: its number; None where the name tells places.
        places: along axes.
        count: how many ranks there are; 0: the name does not say.
        sure: the name alone says so. Else it does beside others: see ``confirmed``.
    """

    start: str
    end: str
    rank: int | None = None
    places: Places = ()
    count: int = 0
    sure: bool = True

    @property
    def rest(self) -> str:
        """The name without what tells of a rank."""
        return (self.start.rstrip("._- ") + "." + self.end.lstrip("._- ")).strip(".")


def read_rank(name: str, *, numbered: bool = False) -> RankName | None:
    """Returns the rank that a name tells of; None where it tells of none.

    Args:
        name: of a directory, or of a file without its suffix.
        numbered: the name told of a step or an epoch before they were taken out of it.
    """
    if (match := SHARE.search(name)) is not None:
        return _named(name, match, rank=int(match[2]), count=int(match[1]))
    if (match := _CONSOLIDATED.search(name)) is not None:
        return _named(name, match, rank=int(match[1]))
    along = _read_places(name)
    if along is None and (match := _RANK.search(name)) is not None:
        return _named(name, match, rank=int(match[1]), sure=numbered or not match.start())
    if along is None and (match := _WORKER.search(name)) is not None:
        return _named(name, match, rank=int(match[1]), sure=False)
    return along


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
    """Returns the rank that a directory is called after, and after nothing else.

    ``rank`` without a number, as msprobe calls that of a program of one process, is rank 0.
    """
    match = _FOLDER.fullmatch(name)
    return None if match is None else int(match[1] or 0)


def megatron_numbers(name: str) -> tuple[int, ...]:
    """Returns the numbers in what Megatron calls a rank (``mp_rank_01_001``); none in another name."""
    match = _MEGATRON.fullmatch(name)
    return () if match is None else _numbers_of(match)


def _numbers_of(match: re.Match[str]) -> tuple[int, ...]:
    return tuple(int(each) for each in match.groups() if each is not None)


def confirmed(names: Sequence[RankName | None]) -> list[RankName | None]:
    """Returns the ranks that names in one directory tell of, without those that only look so."""
    beside: dict[tuple[str, str, tuple[str, ...]], set[tuple[int, ...]]] = {}
    for each in names:
        if each is not None and not each.sure:
            beside.setdefault(_alike(each), set()).add(_numbers(each))
    real = {alike for alike, found in beside.items() if len(found) > 1 and any(not any(each) for each in found)}
    return [each if each is not None and (each.sure or _alike(each) in real) else None for each in names]


def number_places(found: Iterable[Places]) -> dict[Places, int]:
    """Returns the number of the rank at each of some places: as launchers count them, without gaps."""

    def order(places: Places) -> tuple[int, ...]:
        at = dict(places)
        return tuple(at.get(axis, 0) for axis in _OUTER_FIRST)

    numbers = {at: number for number, at in enumerate(sorted({order(places) for places in found}))}
    return {places: numbers[order(places)] for places in found}


def sized_places(places: Mapping[int, Places]) -> dict[int, dict[str, tuple[int, int]]]:
    """Returns the place of each rank along each axis, and how many ranks that has; empty where an axis has no name.

    Args:
        places: of each rank.
    """
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
