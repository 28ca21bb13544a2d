"""Tells which run a process belongs to: the processes that one launcher started train together."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Final

_TOGETHER: Final = (("TORCHELASTIC_RUN_ID",), ("PMIX_NAMESPACE",), ("OMPI_MCA_ess_base_jobid",))
"""Variables that are equal for all processes of a run, and for no other run on their machines at that time."""
_STEP: Final = ("SLURM_JOB_ID", "SLURM_STEP_ID")
"""A job's script may start several trainings; the processes of one ``srun`` are one step of the job."""
_MEETING: Final = ("MASTER_ADDR", "MASTER_PORT")
_LOCAL: Final = frozenset({"localhost", "127.0.0.1", "::1"})
_LONGEST: Final = 150


def run_of(variables: Mapping[str, str], host: str) -> str:
    """A text that all processes of a run share, and no other run; empty without a known launcher."""
    meeting = [variables.get(name, "") for name in _MEETING]
    if all(meeting):  # torchrun, accelerate, deepspeed, mp.spawn with environment variables
        place = f"{host} " if meeting[0] in _LOCAL else ""
        return f"{place}{':'.join(meeting)} {variables.get('TORCHELASTIC_RUN_ID', '')}".strip()[:_LONGEST]
    for names in (*_TOGETHER, _STEP):
        found = [variables.get(name, "") for name in names]
        if all(found):
            return " ".join(found)[:_LONGEST]
    if variables.get("PMI_RANK") or variables.get("OMPI_COMM_WORLD_RANK"):
        return f"{host} process {os.getppid()}"
    module = sys.modules.get("multiprocessing.process")
    parent = module.parent_process() if module is not None else None
    return f"{host} process {parent.pid}" if parent is not None else ""
