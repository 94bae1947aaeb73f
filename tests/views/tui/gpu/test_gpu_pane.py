"""The GPU pane: literal rows in, lines out."""

import dataclasses

import pytest
from msgspec import structs
from rich.cells import cell_len

from tuimon.records import Gpu, GpuProcess
from tuimon.session.rows import GpuRow, TorchMemoryRow
from tuimon.views.tui.drawing.glyphs import ascii_only
from tuimon.views.tui.drawing.lines import cells, text_of
from tuimon.views.tui.gpu.alarms import alarm_lines
from tuimon.views.tui.gpu.gpu_pane import GpuPane, GpuState, gpu_rows_wanted, gpus_lines, in_front
from tuimon.views.tui.gpu.gpu_table import spans_of

GIB = 1 << 30


def replace(row, **changes):
    """The row with other figures, its own or its latest record's."""
    own = {name: changes.pop(name) for name in list(changes) if name in GpuRow.__dataclass_fields__}
    return dataclasses.replace(row, latest=structs.replace(row.latest, **changes), **own)


BARE = GpuRow(
    Gpu(t=1.0, pid=0, index=0, uuid="GPU-0", name="Older"), stale_s=12.4, used_by_run=False, util_history=(None, None)
)
OLD = replace(
    BARE,
    stale_s=0.0,
    used_by_run=True,
    name="GeForce",
    util_ratio=0.37,
    util_history=(0.2, 0.4),
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
    util_history=(1.0,) * 200,
    sm_ratio=0.71,
    tensor_ratio=0.12,
    dram_ratio=0.44,
    sm_history=(0.7,) * 200,
    tensor_history=(0.1,) * 200,
    dram_history=(0.4,) * 200,
    memory_temperature_c=72.0,
    pcie_rx_bytes_per_s=1.2 * GIB,
    pcie_tx_bytes_per_s=None,
    nvlink_rx_bytes_per_s=22.0 * GIB,
    nvlink_tx_bytes_per_s=21.0 * GIB,
    joules_per_step=34.2,
    ecc_errors=0,
    processes=[GpuProcess(977, 3 * GIB), GpuProcess(4242, 17 * GIB, 0.71)],
    run_pids=frozenset({4242}),
)
SLOWED = replace(OLD, throttle=["power cap"], throttled=(("power cap", 0.34), ("thermal", 0.02)))
BROKEN = replace(HOPPER, xids=(31, 79), ecc_errors=3, stale_s=12.4)


def number(count, gpu=HOPPER, **more):
    return tuple(replace(gpu, index=i, uuid=f"GPU-{i}", **more) for i in range(count))


def instance(profile, uuid, **more):
    return replace(HOPPER, name=f"NVIDIA H100 MIG {profile}", uuid=uuid, parent_uuid="GPU-0", util_ratio=None,
                   util_history=(None,), power_w=None, power_limit_w=None, temperature_c=None, sm_clock_mhz=None,
                   sm_clock_max_mhz=None, memory_temperature_c=None, processes=[], **more)  # fmt: skip


def drawn(gpus, width, height, **more):
    return [text_of(row).rstrip() for row in gpus_lines(GpuState(tuple(gpus), None, **more), width, height)]


def roles(gpus, width, height):
    return {span.text.strip(): span.role for row in gpus_lines(GpuState(tuple(gpus), None), width, height)
            for span in row}  # fmt: skip


# -- one GPU


def test_a_card_before_hopper():
    assert drawn([OLD], 56, 4)[2:] == [
        "memory   26 %  ━━━━━━──────────────────  21.0 / 80.0 GiB",
        "power   310 / 700 W · 61 °C · 1755 / 1980 MHz",
    ]


def test_busy_but_not_with_matrices_shows_at_a_glance():
    rows = drawn([HOPPER], 56, 10)
    figures = [row.split()[:3] for row in rows if row[:1].strip()][:4]
    assert figures == [["util", "100", "%"], ["SM", "71", "%"], ["tensor", "12", "%"], ["DRAM", "44", "%"]]


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
        "process 4242     17.0 GiB  SM  71 %  this run",
        "        977       3.0 GiB  SM     –  foreign",
    ]


def test_ranks_are_named():
    assert "rank 3" in drawn([HOPPER], 60, 16, labels=((4242, "rank 3"),))[-2]


def test_many_processes_are_counted():
    crowd = replace(HOPPER, processes=[GpuProcess(pid, GIB) for pid in range(1, 8)])
    assert drawn([crowd], 60, 20)[-1] == "        +4 more"


def test_the_charts_scale_is_fixed():
    quarter = replace(BARE, stale_s=0.0, util_history=(0.25,) * 80)
    rows = drawn([quarter], 40, 6)
    assert [row[15:] for row in rows[:4]] == ["", "", "", "⣿" * 25]


def test_torchs_share_of_the_memory():
    torch = (TorchMemoryRow(0, "GPU-0", 8 * GIB, 16 * GIB, 0),)
    assert drawn([OLD], 64, 4, torch=torch)[1:] == [
        "memory   26 %  ━━━╍╍╍┄┄────────────────────────  21.0 / 80.0 GiB",
        "torch   ━ 8.0 allocated  ╍ 16.0 reserved  ┄ 5.0 outside torch",
        "power   310 / 700 W · 61 °C · 1755 / 1980 MHz",
    ]
    assert drawn([OLD], 56, 4, torch=torch)[2] == "torch   ━ 8.0 allocated  ╍ 16.0 reserved"
    assert drawn([OLD], 36, 4, torch=torch)[2] == "torch   8.0 of 16.0 GiB reserved"


def test_torchs_share_adds_up_over_the_ranks_and_stays_on_its_gpu():
    torch = (TorchMemoryRow(0, "GPU-1", GIB, 2 * GIB, 0), TorchMemoryRow(0, "GPU-1", GIB, 3 * GIB, 0))
    rows = drawn(number(2, OLD), 56, 12, torch=torch)
    told = [y for y, row in enumerate(rows) if row.startswith("torch")]
    assert [rows[y] for y in told] == ["torch   ━ 2.0 allocated  ╍ 5.0 reserved"]
    assert told[0] > rows.index("● GPU 1")


def test_retries_of_the_allocator_are_told():
    rows = drawn([OLD], 56, 4, torch=(TorchMemoryRow(0, "GPU-0", 8 * GIB, 16 * GIB, 3),))
    assert rows[2] == "torch   ━ 8.0 allocated  ╍ 16.0 reserved  3 retries"


def test_memory_of_a_process_that_does_not_say_where_is_shown_only_for_a_single_gpu():
    torch = (TorchMemoryRow(0, None, GIB, 2 * GIB, 0),)
    assert any(row.startswith("torch") for row in drawn([OLD], 56, 8, torch=torch))
    assert not any(row.startswith("torch") for row in drawn(number(2, OLD), 56, 16, torch=torch))


def test_what_a_gpu_does_not_tell_is_a_dash_or_left_out():
    rows = drawn([BARE], 56, 5)
    assert rows[0] == " no answer for 12s"
    assert rows[-2:] == [f"memory      –  {'─' * 38}  –", "power   –"]
    assert "0 %" not in "".join(rows)


def test_old_figures_are_faint():
    assert roles([OLD], 56, 6)["37 %"] == "strong"
    assert roles([replace(OLD, stale_s=12.0)], 56, 6)["37 %"] == "dim"


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


# -- which GPUs


def test_gpus_of_others_are_one_line():
    others = tuple(replace(gpu, used_by_run=False, util_ratio=0.1 * gpu.latest.index) for gpu in number(8)[1:])
    rows = drawn((HOPPER, *others), 76, 8)
    assert rows[-1] == "not used by this run: GPU 1–7 · busiest 70 %"
    assert drawn((HOPPER, *others), 36, 8)[-1] == "not used: GPU 1–7"


def test_where_none_is_known_to_be_used_all_are_shown():
    gpus = number(3, used_by_run=False)
    assert in_front(gpus) == (list(gpus), [])


def test_instances_stand_below_the_gpu_that_they_are_cut_from():
    parent = replace(HOPPER, util_ratio=None, util_history=())
    gpus = (parent, instance("1g.10gb", "MIG-a"), instance("3g.40gb", "MIG-b", used_by_run=True),
            instance("1g.10gb", "MIG-c"))  # fmt: skip
    gpus = (gpus[0], replace(gpus[1], used_by_run=False), gpus[2], replace(gpus[3], used_by_run=False))
    rows = drawn(gpus, 56, 8)
    assert rows[:2] == ["GPU 0  310 / 700 W · 61 °C · 1755 / 1980 MHz", "● MIG 3g.40gb  MIG-b"]
    assert rows[-1] == "not used by this run: 2 MIG instances"
    assert not any(row.startswith(("util", "power")) for row in rows)
    assert "● └ 3g.40gb" in drawn(gpus, 56, 4)[2]


@pytest.mark.parametrize(("numbers", "text"), [([1, 2, 3, 5], "1–3, 5"), ([7], "7"), ([4, 0], "0, 4"), ([], "")])
def test_ranges_of_numbers(numbers, text):
    assert spans_of(numbers) == text


# -- many GPUs


def test_a_table_lines_up():
    rows = drawn(number(8), 56, 9)
    assert rows[0].split() == ["util", "tensor", "memory", "GiB", "power", "heat"]
    assert len({cell_len(row) for row in rows[1:]}) == 1
    assert rows[1].endswith("12 %    26 %   21.0   310 W   61 °C")


def test_a_table_says_what_is_wrong_with_which():
    gpus = list(number(8, OLD))
    gpus[5] = replace(gpus[5], throttle=["power cap"], throttled=(("power cap", 0.34),))
    gpus[6] = replace(gpus[6], stale_s=12.0)
    gpus[7] = replace(gpus[7], xids=(79,))
    rows = drawn(gpus, 56, 9)
    assert [row.split("  ")[-1].strip() for row in rows[6:]] == ["power cap 34 %", "12s old", "XID 79"]


def test_eight_gpus_in_three_rows():
    rows = drawn(number(8), 76, 3)
    assert rows[0].count("100 %") == rows[1].count("100 %") == 4
    assert rows[2] == "tensor 12 %  SM 71 %  memory 26 %  power 310 W  heat 61 °C"
    gpus = list(number(8))
    gpus[5] = replace(gpus[5], throttle=["power cap"], xids=(79,))
    assert drawn(gpus, 76, 3)[2] == "5:  XID 79  the GPU has fallen off the bus"
    gpus[6] = replace(gpus[6], stale_s=12.0)
    assert drawn(gpus, 76, 3)[2] == "5:  XID 79    6:  no answer for 12s"
    gpus[7] = replace(gpus[7], xids=(48,))
    assert drawn(gpus, 76, 3)[2] == "5:  XID 79    6:  no answer for 12s   7:  XID 48"


def test_cards_side_by_side_are_aligned_and_even():
    gpus = list(number(8))
    gpus[5] = replace(gpus[5], throttle=["power cap"])
    rows = drawn(gpus, 196, 40)
    heads = [row for row in rows if row.startswith("●")]
    assert [row.count("●") for row in heads] == [4, 4]
    assert "● GPU 5  slowed: power cap" in heads[1]
    assert {row.count("memory") for row in rows if "memory" in row and "heat" not in row} == {4}


def test_a_machine_full_of_other_peoples_gpus_is_a_table():
    rows = drawn(number(8, used_by_run=False), 86, 40)
    assert len(rows) == 9 and rows[1].startswith("· 0")


@pytest.mark.parametrize(("width", "most", "rows"), [(86, 36, 32), (56, 24, 9)])
def test_cards_are_wanted_where_they_fit(width, most, rows):
    assert gpu_rows_wanted(GpuState(number(8), None), width, most) == rows


def test_no_gpu_is_one_line():
    assert drawn([], 60, 1) == ["GPU none seen so far"]
    state = GpuState((), "no NVIDIA driver", "install it")
    assert text_of(gpus_lines(state, 60, 1)[0]) == "GPU no NVIDIA driver – install it"
    assert text_of(gpus_lines(state, 24, 1)[0]) == "GPU no NVIDIA driver"


def test_the_heading_names_the_gpu_or_counts_them():
    pane = GpuPane()
    assert text_of(pane.heading(GpuState((HOPPER,), None))) == "2 GPU 0 · H100"
    assert text_of(pane.heading(GpuState(number(8), None))) == "2 GPU · 8 of 8 used by this run · H100"


KINDS = [OLD, BARE, HOPPER, SLOWED, BROKEN]


@pytest.mark.parametrize("count", [1, 2, 3, 8, 16])
@pytest.mark.parametrize("width", [36, 38, 46, 56, 76, 86, 120])
def test_gpus_fit_their_pane_at_any_size(count, width):
    torch = (TorchMemoryRow(0, "GPU-0", 8 * GIB, 16 * GIB, 0),)
    for gpu in KINDS:
        gpus = number(count, gpu)
        for height in (1, 2, 3, 4, 5, 8, 20, 57):
            for shown in (gpus, (*gpus, *(replace(other, uuid="x", used_by_run=False) for other in gpus[:1]))):
                lines = gpus_lines(GpuState(shown, "a note " * 20, torch=torch), width, height)
                assert len(lines) <= height
                assert all(cells(row) <= width for row in lines), (gpu.name, height)
                assert all(ascii_only(text_of(row)).isascii() for row in lines)
