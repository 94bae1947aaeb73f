"""One training to inject into. Its weights after n steps are the same whatever its shape and whatever is done to it.

``python training.py SHAPE SECONDS`` trains until its standard input closes and prints, as JSON, how many steps it made,
a checksum over its weights after each of them, and when each step ended. ``python training.py plain STEPS`` prints the
checksums after each step.
"""

import ctypes
import json
import os
import select
import sys
import threading
import time
import zlib

import torch
from torch.utils.data import DataLoader, TensorDataset

SHAPE, AMOUNT = sys.argv[1], float(sys.argv[2])


def extra():
    """What the shape does in every step besides; ``AMOUNT`` is in seconds."""
    if SHAPE == "kernel":
        until_s = time.monotonic() + AMOUNT
        while time.monotonic() < until_s:
            torch.mm(BIG, BIG)
    elif SHAPE == "sleep":
        time.sleep(AMOUNT)
    elif SHAPE == "extension":
        ctypes.PyDLL(None).usleep(int(AMOUNT * 1e6))  # keeps the GIL
    elif SHAPE == "fork":
        child = os.fork()
        if not child:
            os._exit(int(sum(range(1000)) != 499500))
        assert os.waitpid(child, 0)[1] == 0
    elif SHAPE == "threads":
        time.sleep(AMOUNT / 10)


def wait(event):
    while not event.wait(0.5):
        sum(range(100))


torch.manual_seed(0)
torch.set_num_threads(1)
BIG = torch.ones(512, 512)
over = threading.Event()
if SHAPE == "threads":
    for _ in range(200):
        threading.Thread(target=wait, args=(over,), daemon=True).start()
data = TensorDataset(torch.randn(64, 16), torch.randint(0, 4, (64,)))
model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.Dropout(0.1), torch.nn.ReLU(), torch.nn.Linear(32, 4))
optimizer = torch.optim.AdamW(model.parameters())
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 100)
step = optimizer.step
digest, digests, ends_ns = 0, [], []


def is_over():
    return len(digests) >= AMOUNT if SHAPE == "plain" else bool(select.select([0], [], [], 0.0)[0])


print("ready", flush=True)
while not is_over():
    for x, y in DataLoader(data, 16, shuffle=True):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(x), y).backward()
        step()
        scheduler.step()
        extra()
        for parameter in model.parameters():
            digest = zlib.crc32(parameter.detach().numpy().tobytes(), digest)
        digests.append(digest)
        ends_ns.append(time.monotonic_ns())
over.set()
if SHAPE == "plain":
    print(json.dumps(digests))
else:
    print(json.dumps({"steps": len(digests), "digest": digest, "ends_ns": ends_ns}))
