"""``hang_alone.py FAULT STEP FOLDER``: a training of one process that hangs at a step, or rightly pauses for long.

It writes to ``FOLDER/rank-0`` when its last step ended (seconds, monotonic). ``# odd: FAULT`` marks the line that a
hang stands at. What its name begins with ``after_`` happens when the training is over, with ``first_`` in the forked
workers that make its first batch.
"""

import concurrent.futures
import http.server
import multiprocessing
import os
import queue
import socket
import sys
import threading
import time

import torch

FAULT, AT, FOLDER = sys.argv[1], int(sys.argv[2]), sys.argv[3]
BATCH = 8
FORK = (None, "fork")
POOL, LOCK = concurrent.futures.ThreadPoolExecutor(1), threading.Lock()
#: A pause of the loop, beyond the time that a hang is told after, and one beyond the minute that slow things are given.
LONG_S, LONGER_S = 40.0, 75.0


class Samples(torch.utils.data.Dataset):
    """Numbers; those of the step in question may hang their worker."""

    def __len__(self):
        return 1_000_000

    def __getitem__(self, index):
        if FAULT == "stuck_worker" and index >= AT * BATCH:
            threading.Event().wait()  # odd: stuck_worker
        if FAULT.startswith("first_") and index < BATCH:
            AT_STEP[FAULT]()
        return torch.full((64,), index / 1e6)


def train():
    torch.set_num_threads(1)
    model = torch.nn.Sequential(torch.nn.Linear(64, 512), torch.nn.ReLU(), torch.nn.Linear(512, 1))
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    has_worker = FAULT == "stuck_worker" or FAULT.startswith("first_")
    loader = torch.utils.data.DataLoader(
        Samples(), BATCH, num_workers=has_worker, multiprocessing_context=FORK[has_worker]
    )
    note_progress(0)
    for step, batch in enumerate(loader):
        if step == AT and not FAULT.startswith(("after_", "first_")):
            AT_STEP.get(FAULT, lambda: None)()
        train_step(model, optimizer, batch)
        note_progress(step)
        time.sleep(0.02)
        if step == AT + 100:
            return


def note_progress(step):
    with open(os.path.join(FOLDER, "rank-0"), "w") as file:
        file.write(f"{step} {time.monotonic()}")


def train_step(model, optimizer, batch):
    loss = model(batch).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


# ---- hangs


def two_locks():
    model_lock, buffer_lock = threading.Lock(), threading.Lock()
    both = threading.Barrier(2)

    def write():
        with buffer_lock:
            both.wait()
            with model_lock:
                pass

    threading.Thread(target=write, daemon=True).start()
    with model_lock:
        both.wait()
        with buffer_lock:  # odd: two_locks
            pass


def queue_without_producer():
    queue.Queue().get()  # odd: queue_without_producer


def queue_of_dead_process():
    rows = multiprocessing.Queue()
    child = multiprocessing.Process(target=os._exit, args=(1,))
    child.start()
    rows.get()  # odd: queue_of_dead_process


def connected():
    listener = socket.create_server(("127.0.0.1", 0))
    client = socket.create_connection(listener.getsockname())
    return client, listener.accept()[0]


def recv_without_sender():
    client, server = connected()
    client.recv(4096)  # odd: recv_without_sender
    server.close()


def recv_from_idle_process():
    client, server = connected()
    if os.fork() == 0:
        client.close()
        server.recv(1)
        os._exit(0)
    server.close()
    client.recv(4096)  # odd: recv_from_idle_process


def socketpair():
    ours, theirs = socket.socketpair()
    ours.recv(4096)  # odd: socketpair
    theirs.close()


def join():
    thread = threading.Thread(target=threading.Event().wait, daemon=True)
    thread.start()
    thread.join()  # odd: join


def semaphore():
    permits = threading.Semaphore(2)
    for _ in range(3):
        permits.acquire()  # odd: semaphore


def process_semaphore():
    permits = multiprocessing.Semaphore(1)
    for _ in range(2):
        permits.acquire()  # odd: process_semaphore


def full_pipe():
    reading, writing = os.pipe()
    while reading:
        os.write(writing, bytes(65536))  # odd: full_pipe


def busy_main():
    threading.Event().wait()  # odd: busy_main


def first_pool():
    POOL.submit(abs, 1).result()  # odd: first_pool


def first_lock():
    with LOCK:  # odd: first_lock
        pass


# ---- pauses with nothing wrong


def evaluate():
    model, until_s = torch.nn.Linear(512, 512), time.monotonic() + LONGER_S
    with torch.no_grad():
        while time.monotonic() < until_s:
            model(torch.randn(256, 512)).sum().item()
            time.sleep(0.02)


def checkpoint():
    """To storage that takes 400 kB/s."""
    reading, writing = os.pipe()
    if os.fork() == 0:
        os.close(writing)
        while os.read(reading, 40_000):
            time.sleep(0.1)
        os._exit(0)
    os.close(reading)
    with os.fdopen(writing, "wb") as file:
        for _ in range(int(LONGER_S / 2.5)):
            file.write(bytes(1_000_000))
    os.wait()


def wait_for_file():
    path = os.path.join(FOLDER, "ready")
    threading.Timer(LONG_S, lambda: open(path, "w").close()).start()
    while not os.path.exists(path):
        time.sleep(1.0)


def sleep():
    time.sleep(LONG_S)


def ask():
    """Somebody at a terminal takes his time."""
    answer_at_stdin(LONGER_S)
    input("go on? ")


def answer_at_stdin(seconds):
    reading, writing = os.pipe()
    os.dup2(reading, 0)
    threading.Timer(seconds, os.write, (writing, b"yes\n")).start()


def sent_by_child(send):
    """What a child process of ours sends to us, until it closes the connection."""
    client, server = connected()
    if os.fork() == 0:
        client.close()
        send(server)
        server.close()
        os._exit(0)
    server.close()
    while client.recv(4096):
        pass


def download():
    sent_by_child(lambda to: [(to.sendall(bytes(5_000)), time.sleep(0.1)) for _ in range(int(LONGER_S * 10))])


def trickle():
    sent_by_child(lambda to: [(to.sendall(bytes(50)), time.sleep(3.0)) for _ in range(int(LONGER_S / 3))])


def compute(seconds=LONG_S):
    until_s = time.monotonic() + seconds
    while time.monotonic() < until_s:
        sum(range(10_000))
        time.sleep(0.002)


def ask_working_server():
    sent_by_child(lambda to: compute())


def produce(rows):
    compute()
    rows.put(1)


def queue_of_working_process():
    rows = multiprocessing.Queue()
    child = multiprocessing.Process(target=produce, args=(rows,))
    child.start()
    rows.get()
    child.join()


def join_working_process():
    child = multiprocessing.Process(target=compute)
    child.start()
    child.join()


def wait_for_idle_process():
    """Another program that sleeps."""
    os.system(f"sleep {LONG_S}")


def first_sleep():
    time.sleep(LONG_S / BATCH)


def first_program():
    os.system(f"sleep {LONG_S / BATCH}")


def first_trickle():
    sent_by_child(lambda to: [(to.sendall(bytes(50)), time.sleep(3.0)) for _ in range(2)])


def first_thread():
    concurrent.futures.ThreadPoolExecutor(1).submit(time.sleep, LONG_S / BATCH).result()


# ---- after the training


def after_serve():
    server = http.server.HTTPServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler)
    threading.Timer(LONGER_S, server.shutdown).start()
    server.serve_forever()


def after_accept():
    listener = socket.create_server(("127.0.0.1", 0))
    threading.Timer(LONGER_S, lambda: socket.create_connection(listener.getsockname())).start()
    listener.accept()


def after_sleep():
    for _ in range(int(LONGER_S)):
        time.sleep(1.0)


def after_ask():
    answer_at_stdin(LONGER_S)
    input("Enter ends it ")


def after_wait():
    ends = threading.Event()
    threading.Timer(LONGER_S, ends.set).start()
    ends.wait()


AT_STEP = {name: value for name, value in globals().items() if callable(value)}


def before_the_fork():
    """Start a thread of the pool, which holds the lock while the workers are forked."""
    POOL.submit(LOCK.acquire).result()


def main():
    if FAULT.startswith("first_"):
        before_the_fork()
    if FAULT == "busy_main":
        thread = threading.Thread(target=train)
        thread.start()
        while thread.is_alive():  # draws a progress bar
            sum(range(200_000))
            time.sleep(0.02)
        return
    train()
    if FAULT.startswith("after_"):
        AT_STEP[FAULT]()


if __name__ == "__main__":
    main()
