# SPDX-License-Identifier: Apache-2.0
"""In any cloud, a host that Placement did not offer counts under its first lack."""

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
from novasched.scheduler.model.aggregate_list import AggregateList
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


class DrawnHost:
    """A host drawn by lot. Most hosts have most of the resources.

    :ivar traits: the traits of the provider.
    :ivar aggregates: the aggregates of the host.
    """

    def __init__(self, number, random):
        def chance(probability):
            return random.random() < probability

        self.name = f'h{number}'
        self.is_known = not chance(0.05)
        self.is_offered = chance(0.3)
        self.in_cell = not chance(0.05)

        self.aggregates = set()
        for aggregate, probability in ((SOUTH, 0.9), (OURS, 0.9), (LICENSED, 0.1)):
            if chance(probability):
                self.aggregates.add(aggregate.uuid)
        self.traits = set()
        for trait, probability in ((DISABLED, 0.1), (AVX, 0.8), (BAD, 0.1)):
            if chance(probability):
                self.traits.add(trait)

        self.ram = random.choice([2048, 8192])
        self.disk_gb = random.choice([20, 100])
        self.free_ram = random.randrange(0, self.ram + 1, 1024)
        self.free_disk = random.randrange(0, self.disk_gb + 1, 20)

    def host(self):
        return a_host(
            self.name,
            ram=self.ram,
            disk_gb=self.disk_gb,
            cell='cell1' if self.in_cell else 'cell2',
        )

    def providers(self):
        """The provider of the host, unless Placement does not know the host."""
        if not self.is_known:
            return []
        provider = Provider(
            a_uuid(self.name),
            {'VCPU': 8, 'MEMORY_MB': self.free_ram, 'DISK_GB': self.free_disk},
            frozenset(self.traits),
            frozenset(self.aggregates),
        )
        return [provider]

    def cause(self, asked):
        """The words under which the host counts, from a look at the host alone."""
        if not self.in_cell and asked.one_cell:
            return 'in other cells'
        if self.is_offered:
            return 'rejected by Nobody'

        verdicts = {
            'unknown to Placement': not self.is_known,
            'in another zone': asked.zone and SOUTH.uuid not in self.aggregates,
            'for other projects': asked.tenants and OURS.uuid not in self.aggregates,
            'in isolated aggregates': asked.licensed
            and LICENSED.uuid in self.aggregates,
            'disabled': DISABLED in self.traits,
            f'have {BAD}': asked.bad and BAD in self.traits,
            f'lack {AVX}': asked.avx and AVX not in self.traits,
            'lack DISK_GB': self.free_disk < asked.disk_gb,
            'lack MEMORY_MB': self.free_ram < asked.ram,
        }
        for words, is_rejected in verdicts.items():
            if is_rejected:
                return words
        return 'offered when asked again'


class DrawnRequest:
    """A request drawn by lot."""

    def __init__(self, random):
        def flip():
            return random.random() < 0.5

        self.zone = flip()
        self.tenants = flip()
        self.licensed = flip()
        self.one_cell = flip()
        self.avx = flip()
        self.bad = flip()
        self.ram = random.choice([512, 2048, 4096])
        self.disk_gb = random.choice([1, 20, 40])

    def request(self):
        aggregates = []
        if self.zone:
            aggregates.append(frozenset([SOUTH.uuid]))
        if self.tenants:
            aggregates.append(frozenset([OURS.uuid]))
        destination = Destination(
            aggregates=tuple(aggregates),
            forbidden_aggregates=frozenset([LICENSED.uuid] if self.licensed else ()),
            cell_uuid=a_uuid('cell1') if self.one_cell else None,
        )

        specs = {}
        if self.avx:
            specs[f'trait:{AVX}'] = 'required'
        if self.bad:
            specs[f'trait:{BAD}'] = 'forbidden'
        return a_request(
            flavor=a_flavor(specs, memory_mb=self.ram, root_gb=self.disk_gb),
            availability_zone='south' if self.zone else None,
            root_forbidden=frozenset([DISABLED]),
            requested_destination=destination,
        )


def check(seed, number):
    """Decide a request, diagnose the refusal, and compare the counts with a recount."""
    random = Random(seed)
    asked = DrawnRequest(random)
    drawn_hosts = [DrawnHost(i, random) for i in range(number)]
    hosts = {}
    slots = {}
    providers = []
    for drawn in drawn_hosts:
        # Placement offers only known hosts, and of the requested cell alone.
        if not drawn.is_known or (asked.one_cell and not drawn.in_cell):
            drawn.is_offered = False
        hosts[a_uuid(drawn.name)] = drawn.host()
        providers += drawn.providers()
        if drawn.is_offered:
            slots[a_uuid(drawn.name)] = 9

    settings = Settings(max_placement_results=10 * number)
    decided = RecordedScheduler(
        [*hosts.values()],
        CountingPlacement(slots),
        [Nobody(settings)],
        settings=settings,
    )
    decision = decided.ask(asked.request())

    placement = ProvidersInMemory(providers)
    aggregates = StaticAggregates(AggregateList([SOUTH, OURS, LICENSED]))
    diagnoser = Diagnoser(settings, placement, aggregates, lambda since: hosts)
    diagnosis, lacks = diagnoser(decision)
    record = replace(record_of(decision), diagnosis=diagnosis)

    counts = render.tally(record)
    expected = Counter(drawn.cause(asked) for drawn in drawn_hosts)
    assert counts == expected
    assert counts.total() == number
    check_headline(render.headline(record), expected, number)
    assert len(placement.asked) <= settings.decisions_questions
    for drawn in random.sample(drawn_hosts, min(number, 20)):
        if not drawn.is_offered:
            [reason] = Rejections([lacks]).against(drawn.name)
            assert reason.startswith(f'Placement: {drawn.cause(asked)}: ')


def check_headline(headline, counts, number):
    """The headline has the number of all hosts, and the counts below 1,000."""
    head, _, tail = headline.partition(': ')
    assert head == f'0 of {number:,} host{"s" * (number > 1)}'
    parts = tail.split(', ')
    for words, count in counts.items():
        part = f'{count:,} {words}'
        assert part in parts or ',' in part


@given(seed=st.integers(0, 2**32), number=st.integers(1, 40))
def test_every_host_counts_under_the_first_lack(seed, number):
    """The counts equal a recount by a look at every host, and add up to all hosts,
    including hosts that a filter rejected."""
    check(seed, number)


@pytest.mark.parametrize(('seed', 'number'), [(1, 1_000), (2, 5_000)])
def test_every_host_of_a_large_cloud_counts_under_the_first_lack(seed, number):
    """The counts of a large cloud equal a recount, too."""
    check(seed, number)
