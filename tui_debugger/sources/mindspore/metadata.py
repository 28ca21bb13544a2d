"""``.dump_metadata``: the copy of the dump configuration and the versions. All of it is optional."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tui_debugger.opener import read_regular
from tui_debugger.sources.mindspore.layout import is_directory

DIRECTORY = ".dump_metadata"


@dataclass(frozen=True, slots=True)
class Metadata:
    """What a rank says about itself; empty strings where it does not.

    Attributes:
        net: net name.
        version: MindSpore version, for example ``2.10.0``.
        device: ``CPU``, ``GPU`` or ``Ascend``.
        iteration: the steps that were asked for, for example ``0|5-8`` or ``all``.
        saved: ``tensor``, ``statistic`` or ``full``.
        program: framework and version of a training that tdbg itself wrote the dump of.
        ranks: how many ranks the training had; 0 where nothing tells.
        notices: what is missing or broken.
    """

    net: str = ""
    version: str = ""
    device: str = ""
    iteration: str = ""
    saved: str = ""
    program: str = ""
    ranks: int = 0
    notices: tuple[str, ...] = ()


def read_metadata(rank: Path) -> Metadata:
    """Reads the metadata of a rank; anything missing or broken becomes a notice."""
    directory = rank / DIRECTORY
    if not is_directory(directory):
        return Metadata(notices=(f"{rank.name} has no {DIRECTORY}: net name, version and device are unknown",))
    notices: list[str] = []
    settings = _read(directory / "data_dump.json", notices).get("common_dump_settings")
    config = _read(directory / "config.json", notices)
    common = settings if isinstance(settings, dict) else {}
    return Metadata(
        net=_text(common.get("net_name")),
        version=_text(config.get("ms_version")),
        device=_text(config.get("device_target")),
        iteration=_text(common.get("iteration")),
        saved=_text(common.get("saved_data")),
        program=_text(config.get("program")),
        ranks=_ranks(directory / "hccl.json", notices),
        notices=tuple(notices),
    )


def at_least(version: str, major: int, minor: int) -> bool:
    """Whether a version text is at least major.minor; an unknown version is not."""
    parts = version.split(".")
    if len(parts) < 2 or not (parts[0].isdigit() and parts[1].isdigit()):
        return False
    return (int(parts[0]), int(parts[1])) >= (major, minor)


def _read(path: Path, notices: list[str]) -> dict[str, Any]:
    name = f"{path.parent.parent.name}/{DIRECTORY}/{path.name}"
    try:
        content = json.loads(read_regular(path).decode("utf-8", "replace"))
    except FileNotFoundError:
        notices.append(f"{name} is missing")
    except (OSError, ValueError, RecursionError):
        notices.append(f"{name} cannot be read")
    else:
        if isinstance(content, dict):
            return content
        notices.append(f"{name} is no JSON object")
    return {}


def _ranks(path: Path, notices: list[str]) -> int:
    """Number of ranks in the table of devices that a distributed training on Ascend has."""
    servers = _read(path, notices).get("server_list") if os.path.lexists(path) else None
    devices = [each.get("device") for each in servers if isinstance(each, dict)] if isinstance(servers, list) else []
    return sum(len(each) for each in devices if isinstance(each, list))


def _text(value: object) -> str:
    return str(value) if isinstance(value, (str, int, float)) and not isinstance(value, bool) else ""
