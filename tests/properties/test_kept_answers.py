# SPDX-License-Identifier: Apache-2.0
"""The answers that the pipeline keeps, against answers from nothing.

One source of the input of a filter or weigher changes at a time. The plugins are found
by their entry points.
"""

from dataclasses import dataclass, field, fields, replace
from importlib.metadata import entry_points
from random import Random

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from novasched.conf.settings import Settings
from novasched.placement.base_answer import BaseAnswer
from novasched.placement.candidates import AskedCandidates
from novasched.placement.local_candidates import LocalCandidates, match
from novasched.placement.remembered import RememberedAnswer
from novasched.plugins import loading
from novasched.scheduler.filters.shared import CandidateFilter
from novasched.scheduler.model.candidate import CandidateIndex
from novasched.scheduler.model.host import Aggregate, capacity_of
from novasched.scheduler.model.usual_guests import (
    NO_USUAL_GUESTS,
    UsualGuest,
    UsualGuests,
)
from novasched.scheduler.pipeline import Pipeline
from tests.lab import provider_trees
from tests.lab.builders import a_candidate, a_flavor, a_mapped_candidate, a_request
from tests.properties.test_pipeline import (
    DEVICE,
    GUESTS,
    KEYS,
    REQUESTS,
    VALUES,
    hosts_of,
)

FILTERS = sorted(entry_points(group='novasched.filters').names)
WEIGHERS = sorted(entry_points(group='novasched.weighers').names)
HOSTS = 6
VGPU = 'VGPU'
WHOLE = 1000
AMOUNTS = ((), (WHOLE,), (WHOLE, WHOLE), (WHOLE, 500), (500,), (0,))
"""The free amounts of the devices of a host."""
TRAITS = ((), ('CUSTOM_A',), ('CUSTOM_B', 'CUSTOM_A'))
PLAIN = a_flavor(vcpus=1)
GPU = a_flavor({'resources:VGPU': str(WHOLE)})
HALF = a_flavor({'resources:VGPU': '500'}, memory_mb=0)
FLAVORS = (PLAIN, GPU, HALF)
MULTIPLIERS = {
    option.name: 1.5
    for option in fields(Settings)
    if option.name.endswith('_weight_multiplier')
}
OPTIONS = {
    **MULTIPLIERS,
    'metrics_weight_setting': ('speed=0.7',),
    'metrics_required': False,
    'isolated_images': ('isolated',),
    'isolated_hosts': ('h4',),
    'max_io_ops_per_host': 2,
    'max_instances_per_host': 2,
    'avoided_traits': ('CUSTOM_B',),
    'failure_domain_key': 'failure_domain',
    'default_availability_zone': 'nova',
}


def with_flavor(flavor):
    return a_request(flavor=flavor)


QUERY = provider_trees.a_query()


@dataclass
class Cloud:
    """The sources of the input of plugins.

    :ivar amounts: by host, the free amounts of its devices in Placement.
    :ivar claims: the amounts of claims on devices that Placement has not counted, by
        provider; each is subtracted once from the remembered answer.
    """

    random: Random
    requests: list
    hosts: list = field(default_factory=list)
    amounts: dict = field(default_factory=dict)
    traits: dict = field(default_factory=dict)
    usual_guests: UsualGuests = NO_USUAL_GUESTS
    remembered: RememberedAnswer | None = None
    claims: list = field(default_factory=list)
    make_offer: object = None

    def __post_init__(self):
        self.hosts = hosts_of(self.random, HOSTS)
        self.part = frozenset(host.uuid for host in self.hosts)
        for host in self.hosts:
            self.amounts[host.uuid] = self.random.choice(AMOUNTS)
            self.traits[host.uuid] = self.random.choice(TRAITS)
        self.requests = [*self.requests, *map(with_flavor, FLAVORS)]
        self.request = self.random.choice(self.requests)
        self.make_offer = self.offers()[0]
        self.other_usual_guests()

    # Offers.

    def text(self):
        """Placement's answer about all hosts."""
        providers = []
        for host in self.hosts:
            devices = [(VGPU, amount) for amount in self.amounts[host.uuid]]
            providers += provider_trees.a_host(host.uuid, *devices)
        for provider in providers:
            provider.traits = self.traits.get(provider.name, ())
        return provider_trees.answer_text(providers)

    def refresh(self):
        """Remember a newer answer."""
        answer = BaseAnswer(self.text(), provider_trees.ASKED_AT)
        earlier = self.remembered
        self.remembered = RememberedAnswer(answer)
        if earlier is not None:
            self.remembered.follow(earlier)
        self.claims = []

    def taken(self, asked_at, change):
        """The amounts of claims since a change number."""
        if change is None:
            return len(self.claims), True, _sums(self.claims)
        return len(self.claims), False, _sums(self.claims[change:])

    def asked(self):
        candidates = [a_candidate(host.uuid) for host in self.hosts]
        return AskedCandidates(candidates, [self.text()])

    def worked_out(self):
        answer = BaseAnswer(self.text(), provider_trees.ASKED_AT)
        matched = match(answer, QUERY, answer.capacity_left)
        return LocalCandidates([matched], provider_trees.ASKED_AT)

    def from_memory(self):
        if self.remembered is None:
            self.refresh()
        self.remembered.subtract(self.taken)
        matched = self.remembered.match(QUERY)
        return LocalCandidates([matched], provider_trees.ASKED_AT, 1.0)

    def without_providers(self):
        return CandidateIndex([a_candidate(host.uuid) for host in self.hosts])

    def nothing(self):
        return None

    def offers(self):
        return (
            self.from_memory,
            self.asked,
            self.worked_out,
            self.without_providers,
            self.nothing,
        )

    # Changes of a source.

    def other_offer(self):
        self.make_offer = self.random.choice(self.offers())

    def other_request(self):
        self.request = self.random.choice(self.requests)

    def other_usual_guests(self):
        guests = []
        for flavor in self.random.sample(FLAVORS, self.random.randrange(1, 4)):
            guests.append(UsualGuest(flavor, self.random.randrange(1, 4)))
        self.usual_guests = UsualGuests(tuple(guests), capacity_of(self.hosts))

    def other_capacity(self):
        """Other hosts come back, for the same usual guests."""
        some = self.hosts[: self.random.randrange(HOSTS)]
        self.usual_guests = replace(self.usual_guests, capacity=capacity_of(some))

    def other_devices(self):
        """The devices of a host are taken, freed or exchanged, and Placement is asked
        again; the host stays the same object."""
        self.amounts[self.random.choice(self.hosts).uuid] = self.random.choice(AMOUNTS)
        if self.random.random() < 0.5:
            self.refresh()

    def other_traits(self):
        self.traits[self.random.choice(self.hosts).uuid] = self.random.choice(TRAITS)
        self.refresh()

    def claim_of_device(self):
        """Another request takes a device of a remembered answer."""
        uuid = self.random.choice(self.hosts).uuid
        self.claims.append((f'{uuid}-0', {VGPU: 500}))

    def other_host(self):
        """A host is replaced: by an equal object, by another state, or by new
        aggregates."""
        position = self.random.randrange(HOSTS)
        host = self.hosts[position]
        key = self.random.choice(KEYS)
        metadata = {key: self.random.choice(VALUES)}
        self.hosts[position] = self.random.choice(
            [
                replace(host),
                replace(host, free_ram_mb=512, num_io_ops=3, num_instances=3),
                replace(host, service=replace(host.service, disabled=True)),
                replace(host, aggregates=(Aggregate(0, None, 'a0', metadata),)),
            ]
        )

    def claim_of_host(self):
        """An instance is placed on a host."""
        position = self.random.randrange(HOSTS)
        self.hosts[position] = self.hosts[position].with_instance(self.request)

    def other_order(self):
        self.random.shuffle(self.hosts)

    def other_part(self):
        """The next requests ask about a part of the hosts."""
        number = self.random.randrange(2, HOSTS + 1)
        some = self.random.sample(self.hosts, number)
        self.part = frozenset(host.uuid for host in some)


def _sums(claims):
    sums = {}
    for provider, amounts in claims:
        of_provider = sums.setdefault(provider, {})
        for name, amount in amounts.items():
            of_provider[name] = of_provider.get(name, 0) + amount
    return sums


CHANGES = (
    Cloud.other_offer,
    Cloud.other_request,
    Cloud.other_usual_guests,
    Cloud.other_capacity,
    Cloud.other_devices,
    Cloud.other_traits,
    Cloud.claim_of_device,
    Cloud.other_host,
    Cloud.claim_of_host,
    Cloud.other_order,
    Cloud.other_part,
)


STORIES = {
    'requests': st.lists(REQUESTS, min_size=1, max_size=3),
    'changes': st.lists(st.sampled_from(CHANGES), min_size=5, max_size=20),
    'seed': st.integers(0, 2**32),
}


def a_pipeline(**options):
    plain = {'enabled_filters': (), 'weight_classes': ()}
    settings = Settings(**{**OPTIONS, **plain, **options})
    pipeline = Pipeline(settings, loading.filters(settings), loading.weighers(settings))
    pipeline.explained_hosts = HOSTS
    return pipeline


def answers(pipeline, cloud, candidates):
    """The verdicts, the reasons and the explained weights for all hosts."""
    hosts = [host for host in cloud.hosts if host.uuid in cloud.part]
    request = replace(cloud.request, usual_guests=cloud.usual_guests)
    pipeline = pipeline.for_request()
    ranking = pipeline.filter(hosts, request, 0, candidates)
    verdicts = []
    for result in ranking.filters:
        rejected = [id(host) for host in result.rejected_hosts]
        verdicts.append((result.name, rejected, result.reasons))
    left = candidates and dict(ranking.candidates)
    ranking = pipeline.weigh(ranking, request, 0, Random(0))
    return verdicts, ranking.best, [id(host) for host in ranking.hosts], left


def check(cloud, changes, **options):
    """Compare the answers of a pipeline that has answered before each change with the
    answers of a new pipeline."""
    kept = a_pipeline(**options)
    answers(kept, cloud, cloud.make_offer())
    for change in changes:
        change(cloud)
        candidates = cloud.make_offer()
        anew = answers(a_pipeline(**options), cloud, candidates)
        assert answers(kept, cloud, candidates) == anew


@pytest.mark.parametrize('name', FILTERS)
@hypothesis_settings(max_examples=15)
@given(**STORIES)
def test_a_kept_verdict_equals_the_verdict_of_a_new_filter(
    name, requests, changes, seed
):
    """A filter that has judged for earlier requests gives the verdicts of a new filter
    after any single change of its input."""
    check(Cloud(Random(seed), requests), changes, enabled_filters=(name,))


@hypothesis_settings(max_examples=100)
@given(**STORIES)
def test_a_kept_weight_equals_the_weight_of_a_new_weigher(requests, changes, seed):
    """Weighers that have weighed for earlier requests give the weights of new weighers
    after any single change of their input."""
    check(Cloud(Random(seed), requests), changes, weight_classes=tuple(WEIGHERS))


def candidate_filters():
    """The names of the filters that judge candidates."""
    plugins = loading.filters(Settings(enabled_filters=tuple(FILTERS)))
    return [plugin.name for plugin in plugins if isinstance(plugin, CandidateFilter)]


@pytest.mark.parametrize('name', candidate_filters())
@hypothesis_settings(max_examples=50)
@given(seed=st.integers(0, 2**32), steps=st.integers(1, 8))
def test_a_used_filter_leaves_the_candidates_of_a_new_filter(name, seed, steps):
    """From instance to instance, a filter leaves the candidates that a new filter
    leaves: after its own offer, after an earlier offer, and for a changed host."""
    random = Random(seed)
    hosts = hosts_of(random, HOSTS)
    candidates = []
    for host in hosts:
        for card in random.sample('ABC', 2):
            candidates.append(a_mapped_candidate(host.uuid, 'gpu', [card]))
    request = a_request(
        count=9, pci_requests=(DEVICE,), numa_topology=random.choice([None, *GUESTS])
    )
    states = [(hosts, CandidateIndex(candidates))]
    kept = a_pipeline(enabled_filters=(name,)).for_request()
    for index in range(steps):
        hosts, offer = random.choice(states)
        new = a_pipeline(enabled_filters=(name,))
        anew = new.filter(hosts, request, index, offer)
        ranking = kept.filter(hosts, request, index, offer)
        assert list(map(id, ranking.hosts)) == list(map(id, anew.hosts))
        assert dict(ranking.candidates) == dict(anew.candidates)

        hosts = [*hosts]
        if random.random() < 0.5:
            position = random.randrange(HOSTS)
            hosts[position] = replace(hosts[position], pci=lambda: ())
        states.append((hosts, ranking.candidates))
