"""``hang.py FAULT STEP FOLDER``: a DDP training on gloo, one rank of which does something wrong at a step.

The last rank is the odd one. Each rank writes to ``FOLDER/rank-N`` when its last step ended (seconds, monotonic).
``# odd: FAULT`` marks the line that it stands at. Each rank has threads that only wait for work.
"""

import os
import queue
import signal
import sys
import threading
import time
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

FAULT, AT, FOLDER = sys.argv[1], int(sys.argv[2]), sys.argv[3]
BATCH = 8
#: How long what is no hang takes (s): beyond any time that a hang is reported after.
LONG_S = 40.0
#: Bytes a second of the slow storage that a checkpoint goes to.
SLOW_BYTES_PER_S = 400_000


class Samples(torch.utils.data.Dataset):
    """Numbers; of the odd rank, those of the step in question wait in a file that nobody writes to."""

    def __init__(self, is_odd):
        self.is_odd = is_odd

    def __len__(self):
        return 1_000_000

    def __getitem__(self, index):
        if self.is_odd and FAULT in ("file", "worker_file") and index >= AT * BATCH:
            with open(os.path.join(FOLDER, "fifo")) as file:  # odd: file, worker_file
                file.read()
        return torch.full((64,), index / 1e6)


def main():
    torch.set_num_threads(1)
    meet()
    rank, world = dist.get_rank(), dist.get_world_size()
    is_odd = rank == world - 1
    metrics = dist.new_group()
    model = torch.nn.Sequential(torch.nn.Linear(64, 512), torch.nn.ReLU(), torch.nn.Linear(512, 1))
    model = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    start_helpers()
    restarted = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")) > 0
    workers = 1 if FAULT == "worker_file" else 0
    loader = torch.utils.data.DataLoader(Samples(is_odd), BATCH, num_workers=workers)
    for step, batch in enumerate(loader):
        if step == AT and not restarted:
            at_step(rank, is_odd)
        loss = model(batch).square().mean()
        optimizer.zero_grad()
        loss.backward()  # odd: skip
        optimizer.step()
        if not (FAULT == "skip" and is_odd and step == AT):
            dist.all_reduce(loss.detach().clone(), group=metrics)
        note(rank, step)
        time.sleep(0.02)
        if step == AT + 100:
            break
    dist.barrier()
    dist.destroy_process_group()


def meet():
    """All ranks of an attempt, by a file of its own: by torchrun's store gloo would look for those that have ended."""
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    dist.init_process_group("gloo", init_method=f"file://{FOLDER}/attempt-{attempt}", rank=rank, world_size=world)


def note(rank, step):
    with open(os.path.join(FOLDER, f"rank-{rank}"), "w") as file:
        file.write(f"{step} {time.monotonic()}")


def at_step(rank, is_odd):
    """What goes wrong, or takes long."""
    if is_odd and FAULT in ("die", "restart", "lost"):
        os.kill(os.getpid(), signal.SIGKILL)
    if FAULT == "lost":
        dist.distributed_c10d._get_default_store().wait(["never set"], timedelta(hours=1))
    if is_odd and FAULT == "stop":
        signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)  # odd: stop
    if is_odd and FAULT == "lock":
        wait_for_nobody()
    if is_odd and FAULT == "thread":
        wait_for_a_thread()
    if is_odd and FAULT == "owner":
        wait_for_the_owner_of_a_lock()
    if rank == 0 and FAULT == "evaluate":
        evaluate()
    if rank == 0 and FAULT == "checkpoint":
        checkpoint()


def start_helpers():
    """A writer of metrics without metrics, and two that look around now and then."""
    metrics, ends = queue.Queue(), threading.Event()

    def write_metrics():
        while True:
            metrics.get()

    def look_around():
        while not ends.wait(3600):
            pass

    for each in (write_metrics, look_around, look_around):
        threading.Thread(target=each, daemon=True).start()


def read_what_never_comes():
    with open(os.path.join(FOLDER, "fifo")) as file:  # odd: thread
        return file.read()


def wait_for_a_thread():
    ready = queue.Queue()
    threading.Thread(target=lambda: ready.put(read_what_never_comes()), daemon=True).start()
    ready.get()


def wait_for_the_owner_of_a_lock():
    lock, is_held = threading.Lock(), threading.Event()

    def write():
        with lock:
            is_held.set()
            os.open(os.path.join(FOLDER, "fifo"), os.O_RDONLY)  # odd: owner

    threading.Thread(target=write, daemon=True).start()
    is_held.wait()
    with lock:
        pass


def wait_for_nobody():
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()  # odd: lock


def evaluate():
    """Passes without backward, by hand."""
    model, until_s = torch.nn.Linear(512, 512), time.monotonic() + LONG_S
    with torch.no_grad():
        while time.monotonic() < until_s:
            model(torch.randn(256, 512)).sum().item()


def checkpoint():
    """A checkpoint to slow storage: a pipe that a child empties little by little."""
    path = os.path.join(FOLDER, "storage")
    os.mkfifo(path)
    reader = os.fork()
    if reader == 0:
        with open(path, "rb", 0) as pipe:
            while pipe.read(SLOW_BYTES_PER_S // 10):
                time.sleep(0.1)
        os._exit(0)
    with open(path, "wb") as pipe:
        state = torch.zeros(int(LONG_S * SLOW_BYTES_PER_S / 4)).numpy().tobytes()
        for begin in range(0, len(state), 1 << 20):
            pipe.write(state[begin : begin + (1 << 20)])
    os.waitpid(reader, 0)


if __name__ == "__main__":
    main()
