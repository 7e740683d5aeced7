# SPDX-License-Identifier: Apache-2.0
"""The way of a plain boot through the product, counted by running it with ports in
memory, stays short enough to be read in one sitting."""

import sys
import threading
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import novasched
from novasched.conf.settings import Settings
from novasched.plugins import loading
from novasched.scheduler.drivers import Parts
from novasched.scheduler.drivers.filter_scheduler import FilterScheduler
from novasched.scheduler.memory import MemoryHosts
from novasched.scheduler.prefilters.request_filter import enabled_prefilters
from tests.lab.builders import a_host, a_request
from tests.lab.ports import CountingPlacement, sources

ROOT = f'{Path(novasched.__file__).parent}/'
OUTSIDE = ('conf/logs.py', 'conf/redaction.py', 'scheduler/memory.py')
"""Not counted: handlers of the log, and what stands for Placement and the databases."""
COMPREHENSIONS = ('<listcomp>', '<setcomp>', '<dictcomp>', '<genexpr>')
"""Not counted: functions for Python, never for a reader."""
SETTINGS = Settings(
    enabled_filters=(
        'AvailabilityZoneFilter',
        'ComputeFilter',
        'ComputeCapabilitiesFilter',
        'ImagePropertiesFilter',
        'ServerGroupAntiAffinityFilter',
        'ServerGroupAffinityFilter',
        'NUMATopologyFilter',
    ),
    weight_classes=('RAMWeigher', 'CPUWeigher', 'DiskWeigher'),
)
MAX_MODULES = 28
MAX_FUNCTIONS = 110
MAX_DEPTH = 11


@dataclass
class BootPath:
    """Functions that were entered, by module, and the deepest stack of the product's
    frames."""

    functions: Counter[tuple[str, str]] = field(default_factory=Counter)
    depth: int = 0

    def __call__(self, frame: FrameType, event: str, _argument: Any) -> None:
        """Count a call: what ``sys.setprofile`` takes."""
        if event == 'call' and is_ours(frame):
            module = frame.f_code.co_filename.removeprefix(ROOT)
            if module in OUTSIDE:
                return
            # Python 3.10 knows the name alone.
            name = getattr(frame.f_code, 'co_qualname', frame.f_code.co_name)
            self.functions[module, name] += 1
            self.depth = max(self.depth, depth_of(frame))


def is_ours(frame: FrameType) -> bool:
    code = frame.f_code
    return code.co_filename.startswith(ROOT) and code.co_name not in COMPREHENSIONS


def depth_of(frame: FrameType | None) -> int:
    """The number of the product's frames on a stack."""
    depth = 0
    while frame is not None:
        depth += is_ours(frame)
        frame = frame.f_back
    return depth


def boot_path() -> BootPath:
    """Boot one instance on one of four hosts, with seven filters and three weighers."""
    hosts = [a_host(f'host{number}') for number in range(4)]
    driver = FilterScheduler(
        Parts(
            SETTINGS,
            enabled_prefilters(SETTINGS, sources()),
            CountingPlacement({host.uuid: 9 for host in hosts}),
            MemoryHosts(hosts),
            loading.filters(SETTINGS),
            loading.weighers(SETTINGS),
        )
    )
    path = BootPath()
    threading.setprofile(path)
    sys.setprofile(path)
    try:
        driver.select_destinations(a_request())
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]
    return path


def test_a_plain_boot_enters_few_functions(unchecked_scopes):
    """A test that fails prints which ones."""
    path = boot_path()
    modules = {module for module, _ in path.functions}
    print(sorted(path.functions))
    print(len(modules), len(path.functions), path.depth)
    assert len(modules) <= MAX_MODULES
    assert len(path.functions) <= MAX_FUNCTIONS
    assert path.depth <= MAX_DEPTH
