"""A training of a few epochs that times the parts of its own wall time, and prints them as JSON."""

import argparse
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

BEGUN = time.monotonic()
import torch  # noqa: E402  (its import is a part)
import torch._dynamo  # noqa: E402  (which the first optimizer imports)
from torch import nn  # noqa: E402
from torch.utils.data import DataLoader, TensorDataset  # noqa: E402

SPENT = {"import": time.monotonic() - BEGUN}
BATCH = 128


def started_s():
    """When the interpreter was started, on the clock of BEGUN."""
    ticks = float(Path("/proc/self/stat").read_text().rsplit(")", 1)[1].split()[19])
    ago = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    return time.monotonic() - ago


class Timed:
    """Adds the time in a ``with`` block to a part."""

    def __init__(self, name):
        self.name = name

    def __enter__(self):
        self.begun = time.monotonic()

    def __exit__(self, *_):
        SPENT[self.name] = SPENT.get(self.name, 0.0) + time.monotonic() - self.begun


def parsed(seconds):
    """Rows of a file that takes so long to parse."""
    until, total = time.monotonic() + seconds, 0
    while time.monotonic() < until:
        total += sum(range(1000))
    return TensorDataset(torch.randn(8_000, 256), torch.randn(8_000, 1))


def installed(seconds):
    """Wait for a program in Python, as pip is."""
    with Timed("program"):
        subprocess.check_call([sys.executable, "-c", f"import time; time.sleep({seconds})"])


def downloaded(seconds):
    """Read what a server in another process sends in drops."""
    code = (
        "import socket, sys, time\n"
        "with socket.create_server(('127.0.0.1', 0)) as server:\n"
        "    print(server.getsockname()[1], flush=True)\n"
        "    there, _ = server.accept()\n"
        "    for _ in range(10 * int(sys.argv[1])):\n"
        "        there.sendall(bytes(1000))\n"
        "        time.sleep(0.1)\n"
    )
    server = subprocess.Popen([sys.executable, "-c", code, str(seconds)], stdout=subprocess.PIPE, text=True)
    port = int(server.stdout.readline())
    with Timed("network"), socket.create_connection(("127.0.0.1", port)) as there, there.makefile("rb") as file:
        file.read()
    server.wait()


def evaluate(model, held_out):
    model.eval()
    with torch.no_grad():
        for x, y in held_out:
            nn.functional.mse_loss(model(x), y)
    model.train()


def save(model, optimizer, path, times):
    with Timed("checkpoint"):
        for _ in range(times):
            torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, path)


def batches(data, size, with_loader):
    """From a DataLoader, or cut by hand."""
    if with_loader:
        return DataLoader(data, batch_size=size, shuffle=True)
    order = torch.randperm(len(data)).split(size)
    return ((data.tensors[0][rows], data.tensors[1][rows]) for rows in order)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=20.0, help="of steps, evaluation and checkpoints")
    parser.add_argument("--install", type=int, default=0, metavar="SECONDS")
    parser.add_argument("--download", type=int, default=0, metavar="SECONDS")
    parser.add_argument("--after", type=float, default=4.0)
    parser.add_argument("--save-every", type=int, default=20, metavar="STEPS")
    parser.add_argument("--save-after-evaluation", action="store_true")
    parser.add_argument("--no-loader", action="store_true")
    args = parser.parse_args()
    torch.set_num_threads(1)
    SPENT["set-up"] = BEGUN - started_s()
    with Timed("set-up"):
        data = parsed(4.0)
        model = nn.Sequential(nn.Linear(256, 2048), nn.ReLU(), nn.Linear(2048, 1024), nn.ReLU(), nn.Linear(1024, 1))
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    if args.install:
        installed(args.install)
    if args.download:
        downloaded(args.download)
    path = os.path.join(tempfile.mkdtemp(), "last.pt")
    steps, end = 0, time.monotonic() + args.seconds
    while time.monotonic() < end:
        with Timed("loop"):
            for x, y in batches(data, BATCH, not args.no_loader):
                loss = nn.functional.mse_loss(model(x), y)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                steps += 1
                if not args.save_after_evaluation and steps % args.save_every == 0:
                    save(model, optimizer, path, 4)
        with Timed("evaluation"):
            evaluate(model, batches(data, BATCH, not args.no_loader))
        if args.save_after_evaluation:
            save(model, optimizer, path, 12)
    with Timed("after"):
        time.sleep(args.after)
    inside = 0.0 if args.save_after_evaluation else SPENT.get("checkpoint", 0.0)
    print(json.dumps({"training": SPENT.pop("loop") - inside, **SPENT, "total": time.monotonic() - started_s()}))


if __name__ == "__main__":
    main()
