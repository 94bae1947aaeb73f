"""GPUs that are not there: what the fake NVML and torch.cuda show of them beside programs that train on the CPU."""

import os
from pathlib import Path
from types import SimpleNamespace

import torch
import torch.distributed as dist
from laps import options, train

_BUSY, _IDLE = 85, 0


# program: given_four
# category: more GPUs than used
# expects: idle_gpu/unused
# gpus: 4 given
# seconds: 45
def given_four(args):
    """A job was given four GPUs by CUDA_VISIBLE_DEVICES and computes on the first; fixed: on all."""
    own, rest = [os.getpid()], ("idle", [])
    used = range(4) if args.fixed else (0,)
    reported(*used)
    shown(**{f"gpu{index}": ("busy", own) if index in used else rest for index in range(4)})
    train(args.seconds)


# program: one_of_two
# category: more GPUs than used
# expects: idle_gpu/unused
# gpus: 2
# seconds: 45
def one_of_two(args):
    """A machine has two GPUs alike, and the training uses one; fixed: somebody else uses the other."""
    reported(0)
    shown(gpu0=("busy", [os.getpid()]), gpu1=("busy", [1]) if args.fixed else ("idle", []))
    train(args.seconds)


# program: two_ranks_of_four
# category: more GPUs than used
# expects: idle_gpu/unused
# gpus: 4
# seconds: 45
# launch: torchrun 2
def two_ranks_of_four(args):
    """Two ranks are started on a machine with four GPUs; fixed: the two others belong to another job."""
    rest = ("busy", [1]) if args.fixed else ("idle", [])
    train_ranks(args, lambda pids: {"gpu0": ("busy", pids[:1]), "gpu1": ("busy", pids[1:]), "gpu2": rest, "gpu3": rest})


# program: ranks_on_first_gpu
# category: API misuse
# expects: idle_gpu/context
# gpus: 2
# seconds: 45
# launch: torchrun 2
def ranks_on_first_gpu(args):
    """Each of two ranks has a context on GPU 0 before it takes its own; fixed: on its own alone."""
    first = slice(1) if args.fixed else slice(2)
    train_ranks(args, lambda pids: {"gpu0": ("busy", pids[first]), "gpu1": ("busy", pids[1:])})


# program: second_gpu_held
# category: API misuse
# expects: idle_gpu/held
# gpus: 2
# seconds: 45
def second_gpu_held(args):
    """Weights lie on two GPUs, and only the first one computes; fixed: both do."""
    own = [os.getpid()]
    reported(0, 1)
    shown(gpu0=("busy", own), gpu1=("busy" if args.fixed else "idle", own))
    train(args.seconds)


# program: model_on_cpu
# category: API misuse
# expects: idle_gpu/model_on_cpu or compute_bound_cpu
# says: to GPU 0
# gpus: 1 given
# seconds: 45
def model_on_cpu(args):
    """The GPU that the job was given runs no kernel, as nothing is moved to it; fixed: NVML shows it at work."""
    if args.fixed:
        reported(0)
        shown(gpu0=("busy", [os.getpid()]))
    else:
        shown(gpu0=("idle", []))
    train(args.seconds)


def train_ranks(args, gpus):
    """Each of two ranks on a GPU of its own; ``gpus`` gives what NVML shows from their process ids."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    pids = [None, None]
    dist.all_gather_object(pids, os.getpid())
    reported(rank)
    if rank == 0:
        shown(**gpus(pids))
    train(args.seconds)
    dist.destroy_process_group()


def shown(**by_gpu):
    """Write what NVML shows: ``gpu0=("busy", [pid]), gpu1=("idle", [])``, and who holds memory there."""
    path = os.environ.get("FAKE_NVML_SCENARIO")
    if path is None:
        return
    lines = Path(path).read_text().splitlines()
    for gpu, (how, pids) in by_gpu.items():
        held = {"util": _BUSY if how == "busy" else _IDLE, "memory_used_mib": 9000 * len(pids)}
        held["pids"] = " ".join(f"{pid}:9000" for pid in pids)
        lines += [f"{gpu.removeprefix('gpu')}.{key} {value}" for key, value in held.items()]
    fresh = Path(f"{path}.{os.getpid()}")
    fresh.write_text("\n".join(lines) + "\n")
    fresh.rename(path)


def reported(*indices):
    """Let torch.cuda say that this process computes on the first of these, and holds memory of the others."""
    cuda = torch.cuda
    cuda.is_initialized, cuda.current_device, cuda.device_count = lambda: True, lambda: indices[0], lambda: 8
    cuda.memory_reserved = lambda index: int(index in indices)
    cuda.get_device_properties = lambda index: SimpleNamespace(uuid=f"GPU-0000000{index}-fake")


if __name__ == "__main__":
    args = options()
    globals()[args.program](args)
