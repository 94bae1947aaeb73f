"""One GPU as a card."""

from tests.views.tui.gpu.rows import BARE, BROKEN, GIB, HOPPER, OLD, SLOWED, drawn, replace, roles
from tuimon.records import GpuProcess
from tuimon.session.rows import GpuMeans, TorchMemoryRow
from tuimon.views.tui.drawing.lines import text_of
from tuimon.views.tui.gpu.names import alarm_lines


def test_in_three_rows_the_activities_stand_beside_the_utilisation():
    rows = drawn([HOPPER], 76, 3)
    assert rows[0].startswith("util    100 %  ⣿⣿⣿")
    assert rows[0].endswith("SM  71 %  tensor  12 %  DRAM  44 %")
    assert drawn([HOPPER], 56, 3)[0].endswith("⣿  SM  71 %  tensor  12 %")
    assert drawn([HOPPER], 44, 3)[0].endswith("⣿  tensor  12 %")
    assert "tensor" not in drawn([HOPPER], 38, 3)[0]


def test_a_card_shows_all_there_is_where_there_is_room():
    rows = drawn([HOPPER], 60, 16)
    assert [row[:8].strip() for row in rows if row[:8].strip()] == [
        "util", "SM", "tensor", "DRAM", "memory", "power", "heat", "PCIe", "NVLink", "process"]  # fmt: skip
    assert rows[-6:] == [
        f"power    44 %  {'━' * 14}{'─' * 18}  310 / 700 W",
        "heat    61 °C, memory 72 °C · 1755 / 1980 MHz · 34.2 J/step",
        "PCIe    in 1.2 GiB/s · out –",
        "NVLink  in 22 GiB/s · out 21 GiB/s",
        "process 4242     17.0 GiB  busy  71 %  this run",
        "        977       3.0 GiB  busy     –  foreign",
    ]


def test_beside_a_counters_name_stands_its_mean_over_the_steps():
    """The last reading is of what followed them: a process that winds down."""
    means = GpuMeans(util_ratio=0.16, sm_ratio=0.02, tensor_ratio=0.0, power_w=136.0, sm_clock_mhz=1410.0,
                     pcie_rx_bytes_per_s=3.0 * GIB, nvlink_tx_bytes_per_s=5.0 * GIB)  # fmt: skip
    rows = drawn([replace(HOPPER, means=means)], 60, 16)
    figures = [row[:13].split() for row in rows if row[:8].strip()]
    assert figures[:4] == [["util", "16", "%"], ["SM", "2", "%"], ["tensor", "0", "%"], ["DRAM", "44", "%"]]
    assert ["power", "19", "%"] in figures and any(row.endswith("  136 / 700 W") for row in rows)
    assert any("1410 / 1980 MHz" in row for row in rows)
    assert "PCIe    in 3 GiB/s · out –" in rows and "NVLink  in 22 GiB/s · out 5 GiB/s" in rows
    assert any(row.startswith("● 0  16 %") for row in drawn([replace(HOPPER, means=means)], 60, 2))


def test_many_processes_are_counted():
    crowd = replace(HOPPER, processes=[GpuProcess(pid, GIB) for pid in range(1, 8)])
    assert drawn([crowd], 60, 20)[-1] == "        +4 more"


def test_retries_of_the_allocator_are_told():
    rows = drawn([OLD], 56, 4, torch=(TorchMemoryRow(0, "GPU-0", 8 * GIB, 16 * GIB, 3),))
    assert rows[2] == "torch   ━ 8.0 GiB allocated  ╍ 16.0 reserved  3 retries"


def test_what_a_gpu_does_not_tell_is_a_dash_or_left_out():
    rows = drawn([BARE], 56, 5)
    assert rows[0] == " no answer for 12s"
    assert rows[-2:] == [f"memory      –  {'─' * 38}  –", "power   –"]
    assert "0 %" not in "".join(rows)


def test_what_slows_it_down_in_words_and_as_share_of_time():
    assert "slowed  power cap 34 %, thermal 2 % of the last 30 s" in drawn([SLOWED], 56, 6)
    assert roles([SLOWED], 56, 6)["slowed"] == "warning"
    over = replace(SLOWED, throttle=[])
    assert roles([over], 56, 6)["slowed"] == "text"
    assert "slowed  power cap" in drawn([replace(SLOWED, throttled=())], 56, 6)


def test_errors_of_the_gpu_are_loud():
    rows = drawn([BROKEN], 76, 6)
    assert rows[0] == " XID 79  the GPU has fallen off the bus (+1 more)"
    assert rows[1] == " ECC 3  uncorrected memory errors since the driver was loaded"
    assert roles([BROKEN], 76, 6)["XID 79"] == "critical badge"
    assert text_of(alarm_lines(replace(OLD, xids=(999,)), 60)[0]).strip() == "XID 999  reported by the driver"
