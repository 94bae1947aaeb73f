"""The job that a run is a part of, as its scheduler, its launcher or the user names it: the same on all its nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

#: Ids of a job that its scheduler gives to all its nodes. Slurm's come first: it has steps and restarts.
_JOB_IDS = ("PBS_JOBID", "LSB_JOBID", "FLUX_JOB_ID")
#: The id of a rendezvous, as torchrun's workers and torchrun itself have it in their environment.
_RENDEZVOUS_IDS = ("TORCHELASTIC_RUN_ID", "PET_RDZV_ID")
#: The number of a node within its job.
_NODE_NUMBERS = ("SLURM_NODEID", "GROUP_RANK", "PET_NODE_RANK", "FLUX_TASK_RANK", "JOB_COMPLETION_INDEX")
_RENDEZVOUS_OPTIONS = ("--rdzv-id", "--rdzv_id")
_NODE_OPTIONS = ("--node-rank", "--node_rank")
#: The id that torchrun takes without --rdzv-id: all its runs have it.
_NO_RENDEZVOUS = "none"
_LONGEST = 100


class Job(Struct, frozen=True, gc=False):
    """Name of a run, and this node's number in it; None where it is unknown."""

    name: str | None = None
    node: int | None = None


def job_of(environ: Mapping[str, str], command: Sequence[str], name: str | None = None) -> Job:
    """The job of a process, by its environment and command line; ``name``: as the user calls the run."""
    found = (
        name
        or _slurm(environ)
        or next((f"job-{environ[key]}" for key in _JOB_IDS if environ.get(key)), None)
        or _rendezvous(environ, command)
    )
    return Job(found[:_LONGEST] if found else None, _node(environ, command))


def _slurm(environ: Mapping[str, str]) -> str | None:
    """``slurm-4711.0``: an allocation may run several steps (srun); ``-r1`` after a requeue, which keeps the id."""
    job = environ.get("SLURM_JOB_ID")
    if not job:
        return None
    step, restarts = environ.get("SLURM_STEP_ID"), environ.get("SLURM_RESTART_COUNT", "0")
    return f"slurm-{job}" + (f".{step}" if step else "") + (f"-r{restarts}" if restarts not in ("", "0") else "")


def _rendezvous(environ: Mapping[str, str], command: Sequence[str]) -> str | None:
    ids = [environ.get(key) for key in _RENDEZVOUS_IDS] + [_option(command, _RENDEZVOUS_OPTIONS)]
    return next((f"rdzv-{each}" for each in ids if each and each != _NO_RENDEZVOUS), None)


def _node(environ: Mapping[str, str], command: Sequence[str]) -> int | None:
    texts = [environ.get(key) for key in _NODE_NUMBERS] + [_option(command, _NODE_OPTIONS)]
    return next((int(text) for text in texts if text and text.isascii() and text.isdigit() and len(text) < 8), None)


def _option(command: Sequence[str], names: Sequence[str]) -> str | None:
    """The value of an option on a command line: ``--rdzv-id 7`` or ``--rdzv-id=7``."""
    for at, word in enumerate(command):
        name, equals, value = word.partition("=")
        if name in names:
            return value if equals else next(iter(command[at + 1 : at + 2]), None)
    return None
