"""What the programs share: where they run and how large, their options, and the clock that times their steps."""

import argparse
import gc
import json
import time

import torch

ON_GPU = torch.cuda.is_available()
DEVICE = torch.device("cuda" if ON_GPU else "cpu")


def sized(on_gpu, on_cpu):
    """The size on a GPU; the other keeps a trial on a CPU short."""
    return on_gpu if ON_GPU else on_cpu


def synchronize():
    """Wait for the GPU, where there is one."""
    if ON_GPU:
        torch.cuda.synchronize()


class StepClock:
    """Lets steps go on until the time is up, and knows their mean length without the first ones."""

    WARM_STEPS = sized(15, 2)
    TIMED_STEPS_AT_LEAST = sized(5, 2)

    def __init__(self, seconds, worth=1):
        """``worth``: steps of the program as it is whose work one step does."""
        self.steps = 0
        self._seconds, self._worth = seconds, worth
        self._begin_s = 0.0

    def goes_on(self):
        """Whether there is another step: asked once in each, always at the same place."""
        self.steps += 1
        if self.steps == self.WARM_STEPS:
            synchronize()
            self._begin_s = time.perf_counter()
        if self.steps < self.WARM_STEPS + self.TIMED_STEPS_AT_LEAST:
            return True
        return time.perf_counter() - self._begin_s < self._seconds

    def mean_ms(self):
        """Of the work of one step of the program as it is."""
        synchronize()
        timed_steps = self.steps - self.WARM_STEPS
        return 1e3 * (time.perf_counter() - self._begin_s) / timed_steps / self._worth


def main(train):
    """``train(seconds, fixed)`` returns its clock."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--fixed", action="store_true", help="without what holds it up")
    parser.add_argument("--gain", action="store_true", help="mean steps as it is, fixed, and as it is again")
    args = parser.parse_args()
    if not args.gain:
        print(f"{train(args.seconds, args.fixed).mean_ms():.3f} ms a step", flush=True)
        return
    means_ms = []
    for fixed in (False, True, False):
        means_ms.append(train(args.seconds, fixed).mean_ms())
        gc.collect()  # workers and pinned memory of the last one
    print(json.dumps({"as_it_is_ms": means_ms[0], "fixed_ms": means_ms[1], "again_ms": means_ms[2]}), flush=True)
