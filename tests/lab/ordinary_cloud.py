# SPDX-License-Identifier: Apache-2.0
"""A cloud of ordinary hosts and guests: a description of the hosts and flavors, and a
trace of a month, for ``novaschedctl simulate trace``.

The hosts are of two kinds with two NUMA cells each. Every cell has CPUs for floating
vCPUs, CPUs for pinned vCPUs, and huge pages. A third of the guests is pinned. The load
is the share of the scarcest resource that the guests would use if none were refused.
"""

import json
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from novasched.conf import loading
from novasched.scheduler.model.host import capacity_of
from novasched.tools.simulate.described_cloud import read_cloud
from novasched.tools.simulate.simulation import change_options, described_simulation
from novasched.tools.simulate.trace import TracePlayer, read_trace, usual_guests_of

DAY = 86400.0
MONTH = 30 * DAY
PINNED = {'hw:cpu_policy': 'dedicated'}
HUGE_PAGES = {'hw:mem_page_size': '2048'}
CONF = """[filter_scheduler]
enabled_filters = ComputeFilter,ComputeCapabilitiesFilter,ImagePropertiesFilter,\
ServerGroupAntiAffinityFilter,ServerGroupAffinityFilter,NUMATopologyFilter
[workarounds]
disable_fallback_pcpu_query = True
"""
"""The nova.conf of the cloud."""
USABLE_CAPACITY = ('novasched.fragmentation_weight_multiplier=1000',)
"""The options for the weigher of usable capacity."""


@dataclass(frozen=True)
class Kind:
    """A flavor with its share of the guests and its mean lifetime in days."""

    name: str
    vcpus: int
    memory_gb: int
    root_gb: int
    share: float
    days: float
    extra_specs: tuple = ()

    @property
    def is_pinned(self):
        """True if the vCPUs are pinned."""
        return 'hw:cpu_policy' in dict(self.extra_specs)


def _kind(name, vcpus, memory_gb, root_gb, share, days, **specs):
    return Kind(name, vcpus, memory_gb, root_gb, share, days, tuple(specs.items()))


KINDS = (
    _kind('tiny', 1, 2, 10, 0.16, 2),
    _kind('small', 2, 4, 20, 0.16, 5),
    _kind('medium', 4, 16, 40, 0.14, 10),
    _kind('large', 8, 32, 80, 0.10, 10),
    _kind('memory', 8, 64, 80, 0.06, 15),
    _kind('huge', 32, 64, 100, 0.03, 10),
    _kind('largest', 64, 256, 100, 0.01, 15),
    _kind('pinned-2', 2, 8, 20, 0.14, 5, **PINNED),
    _kind('pinned-4', 4, 16, 40, 0.12, 10, **PINNED, **HUGE_PAGES),
    _kind('pinned-16', 16, 32, 80, 0.08, 10, **PINNED, **HUGE_PAGES),
)


def _cell(cpus, dedicated, memory_gb, pages_gb):
    return {
        'cpus': cpus,
        'dedicated_cpus': dedicated,
        'threads': 2,
        'memory_mb': memory_gb * 1024,
        'pages': {2048: pages_gb * 512},
    }


def cloud(hosts):
    """The description of a cloud with a number of hosts: six of ten are small."""
    small = {
        'name': 'small',
        'cpu_allocation_ratio': 1.0,
        'number': hosts * 6 // 10,
        'disk_gb': 4000,
        'cells': [_cell(16, 16, 128, 32)] * 2,
    }
    big = {
        'name': 'big',
        'cpu_allocation_ratio': 1.0,
        'number': hosts - hosts * 6 // 10,
        'disk_gb': 8000,
        'cells': [_cell(40, 32, 384, 64)] * 2,
    }
    flavors = {}
    for kind in KINDS:
        flavors[kind.name] = {
            'vcpus': kind.vcpus,
            'memory_mb': kind.memory_gb * 1024,
            'root_gb': kind.root_gb,
            'extra_specs': dict(kind.extra_specs),
        }
    return {'hosts': [big, small], 'flavors': flavors}


def capacities(description):
    """The capacity of a cloud by resource, in the units of :func:`demands`."""
    totals = {'vcpus': 0, 'dedicated': 0, 'memory_gb': 0, 'disk_gb': 0, 'pages_gb': 0}
    for kind in description['hosts']:
        number = kind['number']
        totals['disk_gb'] += number * kind['disk_gb']
        for cell in kind['cells']:
            pages_gb = cell['pages'][2048] / 512
            totals['vcpus'] += number * cell['cpus']
            totals['dedicated'] += number * cell['dedicated_cpus']
            totals['memory_gb'] += number * (cell['memory_mb'] / 1024 - pages_gb)
            totals['pages_gb'] += number * pages_gb
    return totals


def demands(kind):
    """The amounts of a guest by resource."""
    is_huge = 'hw:mem_page_size' in dict(kind.extra_specs)
    cpus = 'dedicated' if kind.is_pinned else 'vcpus'
    memory = 'pages_gb' if is_huge else 'memory_gb'
    return {cpus: kind.vcpus, memory: kind.memory_gb, 'disk_gb': kind.root_gb}


def guests_at(load, description):
    """The number of guests with which the scarcest resource is in use to a share."""
    weights = np.array([kind.share * kind.days for kind in KINDS])
    weights /= weights.sum()
    capacity = capacities(description)
    asked = dict.fromkeys(capacity, 0.0)
    for kind, weight in zip(KINDS, weights, strict=True):
        for name, amount in demands(kind).items():
            asked[name] += weight * amount
    return load * min(capacity[name] / asked[name] for name in capacity)


def player(description, lines, options, seed):
    """The player of a trace in a cloud, and the entries of the trace.

    :param description: see :func:`cloud`.
    :param lines: the lines of the trace.
    :param options: options of nova.conf beside :data:`CONF`, as for ``--set``.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        (path / 'nova.conf').write_text(CONF)
        (path / 'cloud.json').write_text(json.dumps(description))
        (path / 'trace').write_text('\n'.join(lines))
        conf = loading.load([f'--config-file={path / "nova.conf"}'], 'novasched')
        change_options(conf, options)
        described = read_cloud(str(path / 'cloud.json'))
        entries = read_trace(str(path / 'trace'))

    capacity = capacity_of(described.hosts)
    usual = usual_guests_of(entries, described.flavors.get, capacity)
    simulation = described_simulation(conf, described, usual, seed)
    return TracePlayer(simulation, usual), entries


def trace(description, load, seed, days=30.0):
    """The lines of a trace: the guests at the beginning, in random order, and then
    boots for some days. Lifetimes are exponential, so that the guests at the beginning
    live as long as new ones."""
    random = np.random.default_rng(seed)
    number = guests_at(load, description)
    shares = np.array([kind.share for kind in KINDS])
    mean_days = np.array([kind.days for kind in KINDS])
    at_first = shares * mean_days / np.sum(shares * mean_days)
    # By Little's law, as many guests come in a day as leave.
    per_day = number / np.sum(shares / shares.sum() * mean_days)

    begin = int(number)
    coming = random.poisson(per_day * days)
    times = np.concatenate(
        [np.linspace(0.0, 1.0, begin), np.sort(random.uniform(0, days, coming)) * DAY]
    )
    kinds = np.concatenate(
        [
            random.choice(len(KINDS), begin, p=at_first),
            random.choice(len(KINDS), coming, p=shares / shares.sum()),
        ]
    )
    lifetimes = random.exponential(mean_days[kinds]) * DAY
    for at, kind, lifetime in zip(times, kinds, lifetimes, strict=True):
        entry = {
            'at': round(float(at), 3),
            'flavor': KINDS[kind].name,
            'lifetime': round(float(lifetime), 3),
        }
        yield json.dumps(entry)
