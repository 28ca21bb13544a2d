"""Which processes are of one run."""

from __future__ import annotations

import multiprocessing
import os

import pytest

from tui_debugger.live.client.launch import run_of

MEETING = {"MASTER_ADDR": "node1", "MASTER_PORT": "29500"}
LOCAL = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}


@pytest.mark.parametrize(
    ("variables", "same", "other"),
    [
        ({**MEETING, "TORCHELASTIC_RUN_ID": "a", "RANK": "0"}, {"RANK": "1"}, {"TORCHELASTIC_RUN_ID": "b"}),
        ({**MEETING, "RANK": "0"}, {"RANK": "1"}, {"MASTER_PORT": "29501"}),
        ({"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0"}, {"SLURM_PROCID": "3"}, {"SLURM_STEP_ID": "1"}),
        ({"PMIX_NAMESPACE": "job"}, {"PMIX_RANK": "3"}, {"PMIX_NAMESPACE": "job2"}),
        ({"OMPI_MCA_ess_base_jobid": "17"}, {"OMPI_COMM_WORLD_RANK": "1"}, {"OMPI_MCA_ess_base_jobid": "18"}),
    ],
)
def test_processes_of_one_launcher_have_one_run(
    variables: dict[str, str], same: dict[str, str], other: dict[str, str]
) -> None:
    run = run_of(variables, "node1")
    assert run
    assert run_of({**variables, **same}, "node2") == run
    assert run_of({**variables, **other}, "node1") != run


def test_a_loopback_address_is_one_of_its_machine() -> None:
    assert run_of(LOCAL, "node1") != run_of(LOCAL, "node2")


def test_a_program_that_was_started_by_hand_has_no_launcher() -> None:
    assert run_of({}, "node1") == ""
    assert run_of({"SLURM_JOB_ID": "7"}, "node1") == "", "a script of a job may start several"
    assert run_of({"MASTER_PORT": "29500"}, "node1") == ""


def test_children_of_one_process_are_of_one_run() -> None:
    with multiprocessing.get_context("fork").Pool(2) as pool:
        runs = set(pool.starmap(run_of, [({}, "node1")] * 4))
    assert runs == {f"node1 process {os.getpid()}"}
