"""Several GPUs: cards, table, mosaic, and none at all."""

import pytest
from msgspec import structs
from rich.cells import cell_len

from tests.views.tui.gpu_rows import (
    BARE,
    BROKEN,
    GIB,
    HOPPER,
    OLD,
    SLOWED,
    drawn,
    instance,
    number,
    replace,
    roles,
    state,
)  # fmt: skip
from tuimon.records import GpuProcess, OptimizerFacts, Process
from tuimon.session.gpus import GpuMeans
from tuimon.views.tui.drawing.canvas import ascii_only
from tuimon.views.tui.drawing.lines import line_width, text_of
from tuimon.views.tui.panes.gpu_card import GpuView, TorchShare, gpu_card, held_bytes, trouble_of
from tuimon.views.tui.panes.gpu_pane import GpuPane, gpu_rows_wanted, gpus_lines


def test_gpus_of_others_are_one_line():
    others = tuple(replace(gpu, used_by_run=False, util_ratio=0.1 * gpu.latest.index) for gpu in number(8)[1:])
    rows = drawn((HOPPER, *others), 76, 8)
    assert rows[-1] == "not used by this run: GPU 1–7 · busiest 70 %"
    assert drawn((HOPPER, *others), 36, 8)[-1] == "not used: GPU 1–7"
    others = tuple(replace(gpu, means=GpuMeans(util_ratio=0.3)) for gpu in others)
    assert drawn((HOPPER, *others), 76, 8)[-1] == "not used by this run: GPU 1–7 · busiest 30 %"


def test_table_and_mosaic_show_means():
    means = GpuMeans(util_ratio=0.16, sm_ratio=0.02, tensor_ratio=0.01, power_w=136.0)
    gpus = number(8, means=means)
    row = drawn(gpus, 86, 9)[1].split()
    assert row[2:4] == ["16", "%"] and {"2", "1", "136"} < set(row)
    rows = drawn(gpus, 76, 3)
    assert rows[0].count("16 %") == 4 and rows[2].startswith("tensor 1 %  SM 2 %") and "power 136 W" in rows[2]


def test_instances_stand_below_the_gpu_that_they_are_cut_from():
    parent = replace(HOPPER, util_ratio=None, course={}, is_divided=True)
    gpus = (parent, instance("1g.10gb", "MIG-a"), instance("3g.40gb", "MIG-b", used_by_run=True),
            instance("1g.10gb", "MIG-c"))  # fmt: skip
    gpus = (gpus[0], replace(gpus[1], used_by_run=False), gpus[2], replace(gpus[3], used_by_run=False))
    rows = drawn(gpus, 56, 8)
    assert rows[:2] == ["GPU 0  310 / 700 W · 61 °C · 1755 / 1980 MHz", "● MIG 3g.40gb  MIG-b"]
    assert rows[-1] == "not used by this run: 2 MIG instances"
    assert not any(row.startswith(("util", "power")) for row in rows)
    assert "● └ 3g.40gb" in drawn(gpus, 56, 4)[2]


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


@pytest.mark.parametrize(("width", "most", "rows"), [(86, 36, 32), (56, 24, 9)])
def test_cards_are_wanted_where_they_fit(width, most, rows):
    assert gpu_rows_wanted(state(number(8)), width, most) == rows


def test_the_heading_names_the_gpu_or_counts_them():
    pane = GpuPane()
    assert text_of(pane.heading(state([HOPPER]))) == "2 GPU 0 · H100"
    assert text_of(pane.heading(state(number(8)))) == "2 GPU · 8 of 8 used by this run · H100"
    with_means = replace(HOPPER, means=GpuMeans(util_ratio=0.5))
    assert text_of(pane.heading(state([with_means]))) == "2 GPU 0 · H100 · last 30s"


KINDS = [OLD, BARE, HOPPER, SLOWED, BROKEN]


@pytest.mark.parametrize("count", [1, 2, 3, 8, 16])
@pytest.mark.parametrize("width", [36, 38, 46, 56, 76, 86, 120])
def test_gpus_fit_their_pane_at_any_size(count, width):
    torch = TorchShare(8 * GIB, 16 * GIB)
    for gpu in KINDS:
        gpus = number(count, gpu)
        for height in (1, 2, 3, 4, 5, 8, 20, 57):
            for shown in (gpus, (*gpus, *(replace(other, uuid="x", used_by_run=False) for other in gpus[:1]))):
                lines = gpus_lines(state(shown, "a note " * 20, torch), width, height)
                assert len(lines) <= height
                assert all(line_width(row) <= width for row in lines), (gpu.name, height)
                assert all(ascii_only(text_of(row)).isascii() for row in lines)


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


def test_many_processes_are_counted():
    crowd = replace(HOPPER, processes=[GpuProcess(pid, GIB) for pid in range(1, 8)])
    assert drawn([crowd], 60, 20)[-1] == "        +4 more"


def test_retries_of_the_allocator_are_told():
    rows = drawn([OLD], 56, 4, torch=TorchShare(8 * GIB, 16 * GIB, 3))
    assert rows[2] == "torch   ━ 8.0 GiB allocated  ╍ 16.0 reserved  3 retries"


HELD = (2 * GIB, 2 * GIB, 4 * GIB)


@pytest.mark.parametrize(
    ("peak_gib", "held", "shown"),
    [
        (16, HELD, "16.0 GiB: 2.0 weights, 2.0 gradients, 4.0 optimizer, 8.0 activations · batch ~8.3x fits"),
        (40, HELD, "40.0 GiB: 2.0 weights, 2.0 gradients, 4.0 optimizer, 32.0 activations · batch ~2x fits"),
        (72, HELD, "72.0 GiB: 2.0 weights, 2.0 gradients, 4.0 optimizer, 64.0 activations"),  # no room
        (16, (), "16.0 GiB in tensors"),
        (6, HELD, "6.0 GiB in tensors"),  # less than what is held: not of one time
    ],
)
def test_the_peak_of_memory_and_its_parts(peak_gib, held, shown):
    torch = TorchShare(8 * GIB, 16 * GIB, 0, peak_gib * GIB, held)
    assert f"peak    {shown}" in drawn([OLD], 100, 8, torch)
    assert all(len(row) <= 40 for row in drawn([OLD], 40, 8, torch))


def test_optimizers_on_a_gpu_tell_what_it_holds():
    sizes = {"parameter_bytes": 4, "gradient_bytes": 4, "state_bytes": 8}
    known, unknown = OptimizerFacts("Adam", "torch", device="cuda", **sizes), OptimizerFacts("Own", "__main__")
    process = Process(t=1.0, pid=7, ppid=1, start_unix_s=0.0, command=[], role="trainer", markers=True)
    assert held_bytes(structs.replace(process, optimizers=[known, known])) == [8, 8, 16]
    for others in ([], [known, unknown], [structs.replace(known, device="cpu")], [known] * 4):
        assert not held_bytes(structs.replace(process, optimizers=others))


def test_what_a_gpu_does_not_tell_is_a_dash_or_left_out():
    rows = drawn([BARE], 56, 5)
    assert rows[0] == " no answer for 12s"
    assert rows[-2:] == [f"memory      –  {'─' * 38}  –", "power   –"]
    assert "0 %" not in "".join(rows)


def test_what_slows_it_down_in_words_and_as_share_of_time():
    assert "slowed  power cap 34 %, thermal 2 % of the last 30s" in drawn([SLOWED], 56, 6)
    assert roles([SLOWED], 56, 6)["slowed"] == "warning"
    over = replace(SLOWED, throttle=[])
    assert roles([over], 56, 6)["slowed"] == "text"
    assert "slowed  power cap" in drawn([replace(SLOWED, throttled=())], 56, 6)
    after = gpu_card(GpuView(over, span="whole run"), 56, 6)
    assert "slowed  power cap 34 %, thermal 2 % of the whole run" in map(text_of, after)


def test_errors_of_the_gpu_are_loud():
    rows = drawn([BROKEN], 76, 6)
    assert rows[0] == " XID 79  the GPU has fallen off the bus (+1 more)"
    assert rows[1] == " ECC 3  uncorrected memory errors since the driver was loaded"
    assert roles([BROKEN], 76, 6)["XID 79"] == "critical badge"
    assert text_of(trouble_of(replace(OLD, xids=(999,)), 60)).strip() == "XID 999  an error that tuimon does not know"
