"""Rows of GPUs of all kinds, and how the pane draws them."""

from msgspec import structs

from tuimon.records import Gpu, GpuProcess
from tuimon.session.gpus import GpuRow
from tuimon.views.tui.drawing.lines import text_of
from tuimon.views.tui.panes.gpu_card import GpuView
from tuimon.views.tui.panes.gpu_pane import GpuState, gpus_lines

GIB = 1 << 30


def replace(row, **changes):
    """The row with other figures, its own or its latest record's."""
    own = {name: changes.pop(name) for name in list(changes) if name in GpuRow.__struct_fields__}
    return structs.replace(row, latest=structs.replace(row.latest, **changes), **own)


BARE = GpuRow(
    Gpu(t=1.0, pid=0, index=0, uuid="GPU-0", name="Older"),
    stale_s=12.4,
    used_by_run=False,
    course={"util_ratio": (None, None)},
)


OLD = replace(
    BARE,
    stale_s=0.0,
    used_by_run=True,
    name="GeForce",
    util_ratio=0.37,
    course={"util_ratio": (0.2, 0.4)},
    memory_used_bytes=21 * GIB,
    memory_total_bytes=80 * GIB,
    power_w=310.0,
    power_limit_w=700.0,
    temperature_c=61.0,
    sm_clock_mhz=1755,
    sm_clock_max_mhz=1980,
)


HOPPER = replace(
    OLD,
    name="NVIDIA H100",
    util_ratio=1.0,
    course={
        "util_ratio": (1.0,) * 200,
        "sm_ratio": (0.7,) * 200,
        "tensor_ratio": (0.1,) * 200,
        "dram_ratio": (0.4,) * 200,
    },
    sm_ratio=0.71,
    tensor_ratio=0.12,
    dram_ratio=0.44,
    memory_temperature_c=72.0,
    pcie_rx_bytes_per_s=1.2 * GIB,
    pcie_tx_bytes_per_s=None,
    nvlink_rx_bytes_per_s=22.0 * GIB,
    nvlink_tx_bytes_per_s=21.0 * GIB,
    joules_per_step=34.2,
    ecc_errors=0,
    processes=[GpuProcess(977, 3 * GIB), GpuProcess(4242, 17 * GIB, 0.71)],
    run_pids={4242: None},
)


SLOWED = replace(OLD, throttle=["power cap"], throttled=(("power cap", 0.34), ("thermal", 0.02)))


BROKEN = replace(HOPPER, xids=(31, 79), ecc_errors=3, stale_s=12.4)


def number(count, gpu=HOPPER, **more):
    return tuple(replace(gpu, index=i, uuid=f"GPU-{i}", **more) for i in range(count))


def instance(profile, uuid, **more):
    return replace(HOPPER, name=f"NVIDIA H100 MIG {profile}", uuid=uuid, parent_uuid="GPU-0", util_ratio=None,
                   course={**HOPPER.course, "util_ratio": (None,)},
                   power_w=None, power_limit_w=None, temperature_c=None, sm_clock_mhz=None,
                   sm_clock_max_mhz=None, memory_temperature_c=None, processes=[], **more)  # fmt: skip


def state(gpus, note=None, torch=None):
    """The pane's state; ``torch``: its share of the first GPU."""
    return GpuState(tuple(GpuView(gpu, torch if not at else None) for at, gpu in enumerate(gpus)), note)


def drawn(gpus, width, height, torch=None):
    return [text_of(row).rstrip() for row in gpus_lines(state(gpus, torch=torch), width, height)]


def roles(gpus, width, height):
    return {span.text.strip(): span.role for row in gpus_lines(state(gpus), width, height) for span in row}
