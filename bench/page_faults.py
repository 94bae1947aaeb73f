"""The CPU time that the kernel takes for a page fault: memory is mapped, written to, and given back; prints a table.

``python bench/page_faults.py``. See ``PAGE_FAULT_US`` in ``tuimon.diagnosis.rules.model``.
"""

from __future__ import annotations

import mmap
import resource

#: Sizes of the blocks, in MiB; written in all for each, and how often each has its turn.
SIZES, WRITTEN, TURNS = (1, 8, 64), 2048, 3


def measure(size: int, *, huge: bool) -> tuple[int, float]:
    """Page faults in a block of so many MiB, and the kernel's time for each in us."""
    data, before = b"x" * (size << 20), resource.getrusage(resource.RUSAGE_THREAD)
    blocks = WRITTEN // size
    for _ in range(blocks):
        block = mmap.mmap(-1, size << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        block.madvise(mmap.MADV_HUGEPAGE if huge else mmap.MADV_NOHUGEPAGE)
        block.write(data)
        block.close()
    after = resource.getrusage(resource.RUSAGE_THREAD)
    faults = after.ru_minflt - before.ru_minflt
    return faults // blocks, 1e6 * (after.ru_stime - before.ru_stime) / faults


def main() -> None:
    with open("/sys/kernel/mm/transparent_hugepage/enabled") as file:
        print(f"transparent huge pages: {file.read().strip()}")
    for size in SIZES:
        for huge in (False, True):
            found = [measure(size, huge=huge) for _ in range(TURNS)]
            times = " ".join(f"{us:8.2f}" for _, us in found)
            print(f"{size:4} MiB, {'huge ' if huge else '4 KiB'}: {found[0][0]:6} faults, {times} us each")


if __name__ == "__main__":
    main()
