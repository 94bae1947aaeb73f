"""NUMA nodes, cores and containers, by files as the kernel has them."""

import pytest

from tuimon.proc import processes
from tuimon.proc.numa import core_list, core_numbers, cores_by_node, nodes_near
from tuimon.proc.procfs import nvidia_driver
from tuimon.sources.gpus import nvml


def machine(folder, nodes, **gpus):
    """A root with these nodes (cores, distances), and PCI devices by bus number."""
    for node, (cores, distances) in nodes.items():
        place = folder / f"sys/devices/system/node/node{node}"
        place.mkdir(parents=True)
        (place / "cpulist").write_text(f"{cores}\n")
        (place / "distance").write_text(f"{distances}\n")
    for bus, node in gpus.items():
        place = folder / f"sys/bus/pci/devices/0000:{bus.removeprefix('bus_')}:00.0"
        place.mkdir(parents=True)
        (place / "numa_node").write_text(f"{node}\n")
    return str(folder)


TWO = {0: ("0-31,64-95", "10 21"), 1: ("32-63,96-127", "21 10")}


def test_nodes_of_one_socket_are_near_each_other(tmp_path):
    four = {
        0: ("0-7", "10 12 32 32"),
        1: ("8-15", "12 10 32 32"),
        2: ("16-23", "32 32 10 12"),
        3: ("24", "32 32 12 10"),
    }
    assert nodes_near("00000000:41:00.0", machine(tmp_path, four, bus_41="3")) == [3, 2]


@pytest.mark.parametrize("told", ["-1", "", "no number"])
def test_firmware_that_does_not_say_gives_nothing(tmp_path, told):
    assert nodes_near("00000000:3B:00.0", machine(tmp_path, TWO, bus_3b=told)) is None


def test_a_node_of_memory_alone_has_no_cores(tmp_path):
    assert list(cores_by_node(machine(tmp_path, {0: ("0-71", "10 80"), 2: ("", "80 10")}))) == [0]


@pytest.mark.parametrize("bus_id", ["00000000:3B:00.0", "../../../etc", ""])
def test_without_sysfs_nothing_is_known(tmp_path, bus_id):
    assert nodes_near(bus_id, str(tmp_path)) is None
    assert cores_by_node(str(tmp_path)) == {}


@pytest.mark.parametrize(("vendor", "hinted"), [("0x10de\n", True), ("0x8086\n", False)])
def test_a_container_is_to_be_started_with_gpus_only_where_the_machine_has_some(tmp_path, monkeypatch, vendor, hinted):
    device = tmp_path / "0000:00:04.0"
    device.mkdir()
    (device / "vendor").write_text(vendor)
    monkeypatch.setattr(processes, "VENDORS", str(tmp_path / "*" / "vendor"))
    monkeypatch.setattr(nvml, "in_container", lambda: True)
    assert processes.has_nvidia_gpu() == hinted
    assert (nvml.Nvml.no_devices().hint is not None) == hinted


@pytest.mark.parametrize("text", ["0", "0-3", "0-3,8", "1,3,5-7"])
def test_what_the_kernel_writes_is_read_and_written_alike(text):
    assert core_list(core_numbers(text + "\n")) == text


def test_what_is_no_list_has_no_cores():
    assert [core_numbers(text) for text in ("", "ff", "-1", "0,,2", "0-99999999999")] == [frozenset()] * 5
    assert core_list(()) == ""


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.129.03  Thu Oct 19 18:56:32 UTC 2023\n", "535.129.03"),
        ("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  560.35.03  Release Build\n", "560.35.03"),
        ("", None),
        (None, None),
    ],
)
def test_the_version_of_nvidias_driver(tmp_path, text, version):
    if text is not None:
        (tmp_path / "proc/driver/nvidia").mkdir(parents=True)
        (tmp_path / "proc/driver/nvidia/version").write_text(text)
    assert nvidia_driver(str(tmp_path)) == version
