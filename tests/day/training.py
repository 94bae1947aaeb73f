"""``python -m tests.day.training FOLDER SECONDS``: two ranks that do for minutes what others do all day.

Rank 0 trains on with workers, threads and programs that come and go. Rank 1 replaces itself by exec again and again.
Each appends a line of what it did to FOLDER/made.jsonl.
"""

import json
import os
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import torch
from torch.utils.data import DataLoader, Dataset

from tests.day.readings import WORKERS, Hourly, real_seconds

HOURLY = Hourly()


class Numbers(Dataset[torch.Tensor]):
    """Items of eight numbers."""

    def __init__(self, length: int) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> torch.Tensor:
        if index >= self.length:
            raise IndexError(index)
        return torch.full((8,), float(index % 7))


class Net:
    """The smallest model with a forward, a backward and an optimizer; counts its steps itself."""

    def __init__(self) -> None:
        self.steps = 0
        self.model = torch.nn.Linear(8, 8)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-4)

    def step(self, batch: torch.Tensor) -> None:
        self.optimizer.zero_grad()
        self.model(batch).square().mean().backward()
        self.optimizer.step()
        self.steps += 1

    def evaluate(self, loader: DataLoader[torch.Tensor]) -> None:
        with torch.no_grad():
            for batch in loader:
                self.model(batch)

    def save(self, path: Path) -> None:
        torch.save(self.model.state_dict(), path)


class Every:
    """Due again and again on an absolute schedule; what was missed is made up for."""

    def __init__(self, period_s: float) -> None:
        self.period_s = period_s
        self.next_s = time.monotonic() + period_s

    def due(self) -> bool:
        if time.monotonic() < self.next_s:
            return False
        self.next_s += self.period_s
        return True

    def wait(self) -> None:
        """Sleep until it is due; not at all where it is late, and what is more than a second late is given up."""
        now_s = time.monotonic()
        if now_s < self.next_s:
            time.sleep(self.next_s - now_s)
        self.next_s = max(self.next_s + self.period_s, now_s - 1.0)


class MainRank:
    """Rank 0."""

    def __init__(self, folder: Path, end_unix_s: float) -> None:
        self.folder = folder
        self.end_unix_s = end_unix_s
        self.net = Net()
        self.did = Counter[str]()
        self.pace = Every(real_seconds(HOURLY.steps))
        self.thread_due = Every(real_seconds(HOURLY.threads))
        self.program_due = Every(real_seconds(HOURLY.programs))
        self.threads: list[threading.Thread] = []

    def run(self) -> None:
        steps = HOURLY.steps // HOURLY.epochs
        while not self.did["epochs"] or time.time() < self.end_unix_s:
            self._epoch(steps, broken_off=self.did["epochs"] % 3 == 2, paced=self.did["epochs"] % 4 != 1)
        for thread in self.threads:
            thread.join()
        note(self.folder, 0, {"updates": self.net.steps, **self.did})

    def _epoch(self, steps: int, *, broken_off: bool, paced: bool) -> None:
        """So many steps, or, as with a limit of batches, nearly so many: then workers are ended early.

        Not paced, they are as fast as they go without workers, which tiny batches would wait for.
        """
        workers = WORKERS if paced else 0
        loader = DataLoader(Numbers(steps * 2), batch_size=2, num_workers=workers, shuffle=True)
        for number, batch in enumerate(loader, 1):
            self.net.step(batch)
            if paced:
                self.pace.wait()
            self._beside()
            if time.time() >= self.end_unix_s or (broken_off and number >= steps - 20):
                break
        self.net.evaluate(DataLoader(Numbers(40), batch_size=2))
        self.net.save(self.folder / "checkpoint.pt")
        self.did["epochs"] += 1
        self.did["workers"] += workers
        self.did["checkpoints"] += 1
        print(f"epoch {self.did['epochs']} done, {self.net.steps} steps", flush=True)

    def _beside(self) -> None:
        if self.thread_due.due():
            self.did["threads"] += 1
            work = train_beside if self.did["threads"] % 10 == 0 else count_a_little
            self.threads = [thread for thread in self.threads if thread.is_alive()]
            self.threads.append(threading.Thread(target=work, name=f"churn-{self.did['threads']}"))
            self.threads[-1].start()
        if self.program_due.due():
            self.did["programs"] += 1
            python = self.did["programs"] % 10 == 0
            command = [sys.executable, "-c", "sum(range(1000))"] if python else ["true"]
            subprocess.run(command, check=True)


def count_a_little() -> None:
    """What a thread of a logger or of a metric does."""
    sum(range(20_000))
    time.sleep(0.05)


def train_beside() -> None:
    """Steps of a model of its own, as a discriminator or a probe is trained on another thread."""
    net = Net()
    for _ in range(5):
        net.step(torch.zeros(2, 8))


def batches() -> Iterator[torch.Tensor]:
    """Batches without a DataLoader."""
    while True:
        yield torch.zeros(2, 8)


def restarting_rank(folder: Path, end_unix_s: float) -> None:
    """Rank 1: trains slowly until an hour has passed, then replaces itself."""
    net, pace, restart = Net(), Every(0.02), Every(real_seconds(HOURLY.restarts))
    for batch in batches():
        net.step(batch)
        pace.wait()
        over = time.time() >= end_unix_s
        if over or restart.due():
            note(folder, 1, {"updates": net.steps, "restarts": int(not over)})
            if over:
                return
            os.execv(sys.executable, [sys.executable, "-m", "tests.day.training", *sys.argv[1:]])


def note(folder: Path, rank: int, did: dict[str, int]) -> None:
    """One line of what a process did."""
    with open(folder / "made.jsonl", "a") as file:
        file.write(json.dumps({"rank": rank, "pid": os.getpid(), **did}) + "\n")


def main(arguments: list[str]) -> None:
    folder = Path(arguments[0])
    torch.set_num_threads(1)
    if len(arguments) > 2:
        restarting_rank(folder, float(arguments[2]))
        return
    end_unix_s = time.time() + float(arguments[1])  # from here on: a busy machine takes long to import torch
    second = subprocess.Popen(
        [sys.executable, "-m", "tests.day.training", *arguments, str(end_unix_s)],
        env={**os.environ, "RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1"},
    )
    try:
        MainRank(folder, end_unix_s).run()
    finally:
        second.wait()


if __name__ == "__main__":
    main(sys.argv[1:])
