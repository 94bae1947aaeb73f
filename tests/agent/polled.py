"""A program, of any Python that the agent supports: a handler in C raises at whatever instruction looks for signals.

Prints as JSON how many of its exceptions went on. Its argument: how many arrive.
"""

import collections
import json
import os
import random
import signal
import sys
import time

import tuimon.agent
from tuimon.agent.outside import attempt

drawn = random.Random(3)


def work():
    """Loops of all kinds, that end with each kind of jump."""
    number = 0
    while number < 60:
        number += 1
        if number % 2:
            continue
        found = [each for each in range(5) if each]
        named = {each: each for each in found}
        for each in named:
            if each > 2:
                break
        while found:
            found.pop()
        while found is not None:
            found = None
        found = [f"{each} of {number}" for each in (number, 10**200)]
        steps = (each for each in range(3))
        for each in steps:
            named[each] = max(each, 1)
        with open(os.devnull, "rb") as file:
            file.read()
    return number


def arrive():
    """One arrival. A function of its own: 3.13 leaves the jump back to a loop's start out of the ``try`` around it."""
    signal.setitimer(signal.ITIMER_REAL, drawn.uniform(0.00005, 0.0005))
    while signal.getitimer(signal.ITIMER_REAL)[0] > 0:
        attempt(work)
    time.sleep(0.5)  # it may still be on its way: any thread takes a signal


def main():
    """All arrivals."""
    agent = os.path.dirname(tuimon.agent.__file__)
    work.__code__ = work.__code__.replace(co_filename=os.path.join(agent, "work.py"))
    signal.signal(signal.SIGALRM, collections.OrderedDict().move_to_end)  # KeyError: there is no such key
    raised = 0
    for _ in range(int(sys.argv[1])):
        try:
            arrive()
        except KeyError:
            raised += 1
    print(json.dumps(raised))


if __name__ == "__main__":
    main()
