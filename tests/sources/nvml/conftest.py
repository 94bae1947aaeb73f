"""The real pynvml over a fake NVML library."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fake_nvml import FakeNvml


@pytest.fixture
def nvml(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[FakeNvml]:
    """With the scenario of the test's module; ``parametrize`` may give options."""
    fake = FakeNvml(tmp_path, **getattr(request, "param", {}))
    fake.set(**request.module.SCENARIO)
    yield fake
    fake.close()
