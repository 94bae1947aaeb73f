"""The name of a run over many nodes."""

from __future__ import annotations

import pytest

from tuimon.launch.job import Job, job_of

TORCHRUN = ["torchrun", "--nnodes", "2", "--rdzv-id", "42", "--node_rank=1", "train.py"]


@pytest.mark.parametrize(
    ("environ", "command", "job"),
    [
        ({}, ["python", "train.py"], Job()),
        ({"SLURM_JOB_ID": "7", "SLURM_NODEID": "3"}, [], Job("slurm-7", 3)),
        ({"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0", "SLURM_RESTART_COUNT": "0"}, [], Job("slurm-7.0")),
        ({"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "1", "SLURM_RESTART_COUNT": "2"}, [], Job("slurm-7.1-r2")),
        ({"PBS_JOBID": "9.server"}, [], Job("job-9.server")),
        ({"TORCHELASTIC_RUN_ID": "none", "GROUP_RANK": "1"}, [], Job(None, 1)),
        ({"TORCHELASTIC_RUN_ID": "abc"}, [], Job("rdzv-abc")),
        ({}, TORCHRUN, Job("rdzv-42", 1)),
        ({}, ["torchrun", "--rdzv_id=42"], Job("rdzv-42")),
        ({}, ["torchrun", "--rdzv-id"], Job()),
        ({"SLURM_JOB_ID": "7"}, TORCHRUN, Job("slurm-7", 1)),
        ({"SLURM_JOB_ID": "7", "SLURM_NODEID": "many"}, [], Job("slurm-7")),
    ],
)
def test_scheduler_and_launcher_name_a_job(environ: dict[str, str], command: list[str], job: Job) -> None:
    assert job_of(environ, command) == job


def test_the_users_name_comes_first() -> None:
    assert job_of({"SLURM_JOB_ID": "7"}, TORCHRUN, "mine") == Job("mine", 1)
