"""Which GPUs the machine has, as a container sees its PCI devices."""

import pytest

from tuimon.proc import container
from tuimon.sources.nvml import problems


@pytest.mark.parametrize(("vendor", "hinted"), [("0x10de\n", True), ("0x8086\n", False)])
def test_a_container_is_to_be_started_with_gpus_only_where_the_machine_has_some(tmp_path, monkeypatch, vendor, hinted):
    device = tmp_path / "0000:00:04.0"
    device.mkdir()
    (device / "vendor").write_text(vendor)
    monkeypatch.setattr(container, "VENDORS", str(tmp_path / "*" / "vendor"))
    monkeypatch.setattr(problems, "in_container", lambda: True)
    assert container.has_nvidia_gpu() == hinted
    assert (problems.no_devices().hint is not None) == hinted
