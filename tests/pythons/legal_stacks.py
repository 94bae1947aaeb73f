"""A program whose threads have few possible stacks, and change them all the time."""

import sys
import threading


def leaf(n):
    return n + 1


def middle(n):
    return leaf(n) + leaf(n)


def räume(n):  # noqa: PLC2401 - names are not always ASCII
    return sum(middle(i) for i in range(n))


def by_key(n):
    return sorted(range(n), key=middle)


def calls_c():
    while True:
        räume(50)
        by_key(50)


def deeper(depth):
    return deeper(depth - 1) if depth else leaf(1)


def recurses():
    while True:
        deeper(60)


def main():
    for function in (calls_c, calls_c, recurses):
        threading.Thread(target=function, name=function.__name__, daemon=True).start()
    print("up", flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
