# SPDX-License-Identifier: Apache-2.0
"""Each host that Placement did not offer counts under its first lack, whatever the
cloud."""

from collections import Counter
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from novasched.conf.settings import Settings
from novasched.observe.records import render
from novasched.observe.records.diagnosis import Diagnoser
from novasched.observe.records.record import Rejections
from novasched.scheduler.filters import Filter
from novasched.scheduler.model.host import Aggregate
from novasched.scheduler.model.request import Destination
from tests.lab.builders import a_flavor, a_host, a_request, a_uuid
from tests.lab.counting_placement import CountingPlacement
from tests.lab.decision_records import RecordedScheduler, record_of
from tests.lab.prefilter_sources import StaticAggregates
from tests.lab.providers import Provider, ProvidersInMemory

SOUTH = Aggregate(1, a_uuid('south'), 'south', {'availability_zone': 'south'})
OURS = Aggregate(2, a_uuid('ours'), 'ours', {'filter_tenant_id': 'project'})
LICENSED = Aggregate(3, a_uuid('licensed'), 'licensed', {'trait:CUSTOM_L': 'required'})
DISABLED = 'COMPUTE_STATUS_DISABLED'
AVX = 'HW_CPU_X86_AVX512F'
BAD = 'CUSTOM_BAD'


class Nobody(Filter):
    """A filter that rejects every host."""

    def reject(self, host, request):
        return 'not liked'


class Facts:
    """A host in plain words, drawn by lot. Most hosts have most of the resources."""

    def __init__(self, number, random):
        chance = lambda part: random.random() < part  # noqa: E731
        self.name = f'h{number}'
        self.is_known = not chance(0.05)
        self.is_offered = chance(0.3)
        self.is_south = chance(0.9)
        self.is_ours = chance(0.9)
        self.is_licensed = chance(0.1)
        self.is_disabled = chance(0.1)
        self.has_avx = chance(0.8)
        self.is_bad = chance(0.1)
        self.ram = random.choice([2048, 8192])
        self.disk_gb = random.choice([20, 100])
        self.free_ram = random.randrange(0, self.ram + 1, 1024)
        self.free_disk = random.randrange(0, self.disk_gb + 1, 20)
        self.in_cell = not chance(0.05)

    def host(self):
        return a_host(
            self.name,
            ram=self.ram,
            disk_gb=self.disk_gb,
            cell='cell1' if self.in_cell else 'cell2',
        )

    def providers(self):
        if self.is_known:
            aggregates = {
                SOUTH: self.is_south,
                OURS: self.is_ours,
                LICENSED: self.is_licensed,
            }
            traits = {DISABLED: self.is_disabled, AVX: self.has_avx, BAD: self.is_bad}
            yield Provider(
                a_uuid(self.name),
                {'VCPU': 8, 'MEMORY_MB': self.free_ram, 'DISK_GB': self.free_disk},
                frozenset(x for x, is_so in traits.items() if is_so),
                frozenset(x.uuid for x, is_so in aggregates.items() if is_so),
            )

    def cause(self, asked):
        """The words under which the host counts, found from the host alone."""
        if not self.in_cell and asked.one_cell:
            return 'in other cells'
        if self.is_offered:
            return 'rejected by Nobody'
        causes = {
            'unknown to Placement': not self.is_known,
            'in another zone': asked.zone and not self.is_south,
            'for other projects': asked.tenants and not self.is_ours,
            'in isolated aggregates': asked.licensed and self.is_licensed,
            'disabled': self.is_disabled,
            f'have {BAD}': asked.bad and self.is_bad,
            f'lack {AVX}': asked.avx and not self.has_avx,
            'lack DISK_GB': self.free_disk < asked.disk_gb,
            'lack MEMORY_MB': self.free_ram < asked.ram,
        }
        return next(
            (words for words, is_so in causes.items() if is_so),
            'offered when asked again',
        )


class Asked:
    """A request in plain words."""

    def __init__(self, random):
        flip = lambda: random.random() < 0.5  # noqa: E731
        self.zone = flip()
        self.tenants = flip()
        self.licensed = flip()
        self.one_cell = flip()
        self.avx = flip()
        self.bad = flip()
        self.ram = random.choice([512, 2048, 4096])
        self.disk_gb = random.choice([1, 20, 40])

    def request(self):
        wanted = [x for x, is_so in ((SOUTH, self.zone), (OURS, self.tenants)) if is_so]
        destination = Destination(
            aggregates=tuple(frozenset([each.uuid]) for each in wanted),
            forbidden_aggregates=frozenset([LICENSED.uuid] if self.licensed else ()),
            cell_uuid=a_uuid('cell1') if self.one_cell else None,
        )
        specs = {f'trait:{AVX}': 'required'} if self.avx else {}
        specs |= {f'trait:{BAD}': 'forbidden'} if self.bad else {}
        return a_request(
            flavor=a_flavor(specs, memory_mb=self.ram, root_gb=self.disk_gb),
            availability_zone='south' if self.zone else None,
            root_forbidden=frozenset([DISABLED]),
            requested_destination=destination,
        )


def check(seed, number):
    """Decide a request, diagnose the refusal, and compare the counts with a recount."""
    random = Random(seed)
    asked = Asked(random)
    facts = [Facts(each, random) for each in range(number)]
    # A host that is not there cannot be offered, nor one that is not asked for.
    seen = [x for x in facts if x.is_known and (x.in_cell or not asked.one_cell)]
    for each in facts:
        each.is_offered = each.is_offered and each in seen
    hosts = [each.host() for each in facts]
    offered = CountingPlacement({a_uuid(x.name): 9 for x in facts if x.is_offered})
    values = Settings(max_placement_results=10 * number)
    decision = RecordedScheduler(hosts, offered, [Nobody(values)], settings=values).ask(
        asked.request()
    )
    providers = []
    for facts_of_host in facts:
        providers += facts_of_host.providers()
    placement = ProvidersInMemory(providers)
    known = {host.uuid: host for host in hosts}
    aggregates = StaticAggregates([SOUTH, OURS, LICENSED])
    found, lacks = Diagnoser(values, placement, aggregates, lambda since: known)(
        decision
    )
    record = replace(record_of(decision), diagnosis=found)

    told = render.tally(record)
    causes = Counter(each.cause(asked) for each in facts)
    assert told == causes
    assert told.total() == number
    parts = {f'{n:,} {words}' for words, n in causes.items()}
    head, _, tail = render.headline(record).partition(': ')
    assert head == f'0 of {number:,} host{"s" * (number > 1)}'
    assert {*tail.split(', ')} >= {x for x in parts if ',' not in x}
    assert len(placement.asked) <= values.decisions_questions
    for each in random.sample(facts, min(number, 20)):
        if not each.is_offered:
            [why] = Rejections([lacks]).against(each.name)
            assert why.startswith(f'Placement: {each.cause(asked)}: ')


@given(seed=st.integers(0, 2**32), number=st.integers(1, 40))
def test_every_host_is_counted_by_what_it_lacks_first(seed, number):
    """The counts are those of a model that looks at each host alone, and add up to all
    hosts, including hosts that a filter rejected."""
    check(seed, number)


@pytest.mark.parametrize(('seed', 'number'), [(1, 1_000), (2, 5_000), (3, 5_000)])
def test_among_many_hosts(seed, number):
    """The same holds for the hosts of a large cloud."""
    check(seed, number)
