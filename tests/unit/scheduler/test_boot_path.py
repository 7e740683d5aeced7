# SPDX-License-Identifier: Apache-2.0
"""The path of a plain boot through the product stays short enough for a single reading.

The path is counted with ports in memory, and with the client of Placement over a stub
adapter.
"""

import sys
import threading
from collections import Counter
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import novasched
from novasched.conf.settings import Settings
from novasched.placement.client import PlacementClient
from novasched.plugins import loading
from novasched.scheduler.drivers import SchedulerDeps
from novasched.scheduler.drivers.filter_scheduler import FilterScheduler
from novasched.scheduler.memory import MemoryHosts
from novasched.scheduler.ports import Placement
from novasched.scheduler.prefilters.request_filter import enabled_prefilters
from tests.lab.builders import a_request, numbered_hosts
from tests.lab.counting_placement import CountingPlacement, slots_on
from tests.lab.prefilter_sources import sources
from tests.lab.stub_adapter import StubAdapter, a_response, an_answer

ROOT = f'{Path(novasched.__file__).parent}/'
OUTSIDE = ('conf/logs.py', 'conf/redaction.py', 'scheduler/memory.py')
"""Modules outside the count: handlers of the log, and stand-ins for Placement and the
databases."""
COMPREHENSIONS = ('<listcomp>', '<setcomp>', '<dictcomp>', '<genexpr>')
"""Functions for Python, and never for a reader."""
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


@dataclass(frozen=True)
class Bounds:
    """Upper limits for entered modules, entered functions, and frames on a stack."""

    modules: int
    functions: int
    depth: int


IN_MEMORY = Bounds(modules=38, functions=147, depth=12)
WITH_CLIENT = Bounds(modules=54, functions=242, depth=16)


@dataclass
class BootPath:
    """The entered functions by module, and the deepest stack of frames of the
    product."""

    functions: Counter[tuple[str, str]] = field(default_factory=Counter)
    depth: int = 0

    def __call__(self, frame: FrameType, event: str, _argument: Any) -> None:
        """Count a call, as a function for ``sys.setprofile``."""
        if event == 'call' and is_ours(frame):
            module = frame.f_code.co_filename.removeprefix(ROOT)
            if module in OUTSIDE:
                return
            self.functions[module, frame.f_code.co_qualname] += 1
            self.depth = max(self.depth, depth_of(frame))


def is_ours(frame: FrameType) -> bool:
    code = frame.f_code
    return code.co_filename.startswith(ROOT) and code.co_name not in COMPREHENSIONS


def depth_of(frame: FrameType | None) -> int:
    """The number of frames of the product on a stack."""
    depth = 0
    while frame is not None:
        depth += is_ours(frame)
        frame = frame.f_back
    return depth


HOSTS = numbered_hosts(4, 'host')


def a_client() -> PlacementClient:
    """A client of a Placement that offers all hosts and allows all claims."""
    amounts = {'VCPU': 1, 'MEMORY_MB': 512, 'DISK_GB': 1}
    offer = an_answer({host.uuid: amounts for host in HOSTS})
    responses = {
        'GET /allocation_candidates': [a_response(200, offer)],
        'PUT /allocations': [a_response(204)],
    }
    return PlacementClient(SETTINGS, StubAdapter(responses))


def boot_path(placement: Placement) -> BootPath:
    """Boot one instance on one of four hosts, with seven filters and three weighers."""
    driver = FilterScheduler(
        SchedulerDeps(
            SETTINGS,
            enabled_prefilters(SETTINGS, sources()),
            placement,
            MemoryHosts(HOSTS),
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


def check(path: BootPath, bounds: Bounds) -> None:
    """Compare a path with its bounds. A test that fails prints the functions."""
    modules = {module for module, _ in path.functions}
    print(sorted(path.functions))
    print(len(modules), len(path.functions), path.depth)
    assert len(modules) <= bounds.modules
    assert len(path.functions) <= bounds.functions
    assert path.depth <= bounds.depth


def test_a_plain_boot_enters_few_functions(unchecked_scopes):
    placement = CountingPlacement(slots_on(HOSTS, 9))
    check(boot_path(placement), IN_MEMORY)


def test_a_boot_with_the_placement_client_enters_few_functions(unchecked_scopes):
    """The client of Placement counts from the query to the adapter, and back. Its
    threads count as well."""
    with closing(a_client()) as client:
        check(boot_path(client), WITH_CLIENT)
