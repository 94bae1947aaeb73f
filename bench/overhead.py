"""What watching costs the training: step times with a watcher against without, taking turns in one run.

Each round starts every variant once; then they take turns on the same cores, block by block, the watchers of those
who wait being stopped meanwhile. A ratio is that of neighbouring blocks, so that whatever drifts hits both. Two
processes of the same program differ in speed by themselves, by some percent: hence the rounds, each of which counts
once. In steps of some milliseconds that hides what watching costs; ``hooks_in_process`` and ``beside`` measure that
within one process.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

from bench.table import Row, Spread
from bench.trainee import PLAIN_COMMAND, Trainee, Variant

#: loop -> the promise for it, median with everything on against plain
PROMISES = {"0.3ms": 1.01, "0.3ms-loader": 1.01, "10ms": 1.003, "10ms-loader": 1.003}
#: The same for the hooks alone, without the monitor beside them.
HOOKS_PROMISES = {**PROMISES, "0.3ms-workers": 1.01, "1.5ms": 1.01, "5ms": 1.003}
#: The same where the model is on a GPU: for ``python -m bench.gpu``.
CUDA_PROMISES = {"cuda-launch": 1.01, "cuda-launch-loader": 1.01, "cuda-10ms": 1.003}
PLAIN = Variant("plain")
PLAIN_AGAIN = Variant("plain again")
TUIMON = Variant(
    "tuimon run",
    command=("{python}", "-m", "tuimon", "run", "--headless", "--log", "{folder}/run.jsonl", "--", *PLAIN_COMMAND),
)
SETTLE_S = 0.4

Say = Callable[[str], None]


def measure(
    loops: list[str], variants: list[Variant], *, rounds: int, turns: int, block_s: float, say: Say
) -> list[Row]:
    """One row per loop and variant. ``variants`` besides plain; plain against plain is measured as the noise."""
    everyone = [PLAIN, PLAIN_AGAIN, *variants]
    taken = Turns(turns, block_s)
    for number in range(rounds):
        say(f"step times, round {number + 1} of {rounds}: {', '.join(variant.name for variant in everyone)}")
        for _ in taken.round(everyone, loops):
            pass
        for variant in everyone:
            if variant.name in taken.failed:
                say(f"{variant.name} could not be measured: {taken.failed[variant.name]}")
        everyone = [variant for variant in everyone if variant.name not in taken.failed]
    return [taken.row(loop, variant) for loop in loops for variant in variants]


class Turns:
    """Processes that take turns, and the ratios that came of it, per loop and variant."""

    def __init__(self, turns: int, block_s: float) -> None:
        self._turns = turns
        self._block_s = block_s
        self._ratios: dict[tuple[str, str], list[float]] = {}  # the median of each round
        self._plain_ns: dict[str, list[float]] = {}
        self.failed: dict[str, str] = {}  # who did not start, and why

    def round(self, everyone: list[Variant], loops: Sequence[str]) -> Iterator[str]:
        """Start all, let them take turns, end all. Gives each loop when it is measured."""
        with ThreadPoolExecutor(len(everyone)) as starting:  # importing torch takes seconds
            started = [found for found in starting.map(self._started, everyone) if found is not None]
        watched = {trainee.variant.name: trainee for trainee in started}
        plain = watched.pop(PLAIN.name, None)
        try:
            for loop in loops:
                if plain is not None:
                    for name, trainee in watched.items():
                        self._alternate(loop, name, plain, trainee)
                yield loop
        finally:
            for trainee in started:
                trainee.close()

    def _started(self, variant: Variant) -> Trainee | None:
        try:
            trainee = Trainee(variant)
            trainee.pause()
        except (RuntimeError, OSError) as error:
            self.failed[variant.name] = str(error)
            return None
        return trainee

    def _alternate(self, loop: str, name: str, plain: Trainee, watched: Trainee) -> None:
        """plain, watched, plain, ...: each watched block against the mean of the plain ones around it."""
        before = self._timed(plain, loop)
        ratios = []
        for _ in range(self._turns):
            with_it = self._timed(watched, loop)
            after = self._timed(plain, loop)
            ratios.append(2 * with_it / (before + after))
            self._plain_ns.setdefault(loop, []).append(after)
            before = after
        self._ratios.setdefault((loop, name), []).append(statistics.median(ratios))

    def _timed(self, trainee: Trainee, loop: str) -> float:
        trainee.resume()
        trainee.block(loop, SETTLE_S)
        median_ns = trainee.block(loop, self._block_s)
        trainee.pause()
        return median_ns

    def row(self, loop: str, variant: Variant) -> Row:
        """The line of the table for this loop and variant."""
        return Row(
            what=f"{variant.name}: {loop_text(loop, self._plain_ns.get(loop, []))}",
            promise={**PROMISES, **CUDA_PROMISES}[loop] if variant is TUIMON else None,
            measured=Spread.of(self._ratios.get((loop, variant.name), [])),
            noise=Spread.of(self._ratios.get((loop, PLAIN_AGAIN.name), [])),
            unit="x",
            why_absent=self.failed.get(variant.name) or self.failed.get(PLAIN.name),
        )


def loop_text(loop: str, plain_ns: list[float]) -> str:
    """The loop for people, with the step time that it really had without a watcher."""
    plain = Spread.of(plain_ns)
    step = f"{plain.median / 1e6:.2f} ms step" if plain else loop
    where = "on the GPU, " if loop.startswith("cuda") else ""
    feeds = {"loader": "DataLoader", "workers": "DataLoader with 2 workers"}
    return f"{step}, {where}{feeds.get(loop.rpartition('-')[2], 'no DataLoader')}"
