# SPDX-License-Identifier: Apache-2.0
"""Hosts by the usual guests with devices that no longer fit."""

from dataclasses import replace

import pytest

from novasched.conf.settings import Settings
from novasched.placement.base_answer import BaseAnswer
from novasched.placement.candidates import AskedCandidates
from novasched.placement.local_candidates import LocalCandidates, match
from novasched.placement.remembered import RememberedAnswer
from novasched.scheduler.host_table import HostTable
from novasched.scheduler.model.candidate import CandidateIndex
from novasched.scheduler.model.flavor import RequestGroup
from novasched.scheduler.model.usual_guests import UsualGuest, UsualGuests
from novasched.scheduler.plugin import Enabled
from novasched.scheduler.weighers.fragmentation import FragmentationWeigher
from novasched.scheduler.weighers.traits import TraitsWeigher
from novasched.scheduler.weights import weigh
from tests.lab import provider_trees
from tests.lab.builders import a_candidate, a_flavor, a_host, a_request

GPUS = {'two': (1000, 1000), 'one-and-half': (1000, 500), 'half': (500,), 'none': ()}
"""The free amounts of the GPUs of each host."""
HOSTS = [a_host(name, uuid=name) for name in GPUS]


def answer_text(gpus):
    """An answer of Placement about all hosts."""
    providers = []
    for name, amounts in gpus.items():
        devices = [('VGPU', amount) for amount in amounts]
        providers += provider_trees.a_host(name, *devices)
    return provider_trees.answer_text(providers)


def worked_out(gpus=GPUS):
    """An offer from an answer about all hosts."""
    answer = BaseAnswer(answer_text(gpus), provider_trees.ASKED_AT)
    matched = match(answer, provider_trees.a_query(), answer.capacity_left)
    return LocalCandidates([matched], provider_trees.ASKED_AT)


def asked(gpus=GPUS):
    """An answer to the request itself."""
    return AskedCandidates(map(a_candidate, gpus), [answer_text(gpus)])


def without_devices():
    """An offer that knows nothing of devices."""
    return CandidateIndex(map(a_candidate, GPUS))


def with_gpus(*amounts):
    """A flavor with a request group for each amount of a GPU."""
    specs = {'group_policy': 'isolate'} if len(amounts) > 1 else {}
    for number, amount in enumerate(amounts, 1):
        specs[f'resources{number}:VGPU'] = str(amount)
    return a_flavor(specs, root_gb=0)


HALF_GPU = RequestGroup('device', {'VGPU': 500})
WHOLE_AND_HALF = UsualGuests(
    (UsualGuest(with_gpus(1000), 1), UsualGuest(with_gpus(500), 2))
)
"""Guests of both kinds ask for the same amount of GPUs: a guest with a whole GPU is
worth a half, a guest with half a GPU a quarter, and there are two of these. A GPU in
reach of a guest counts 3 for each guest of the kind."""
PAIRS = UsualGuests((UsualGuest(with_gpus(1000, 1000), 1),))
NO_DEVICES = UsualGuests((UsualGuest(a_flavor(), 1),), {'VCPU': 1.0})

TABLE = [
    (WHOLE_AND_HALF, a_request(), [0, 0, 0, 0]),
    (WHOLE_AND_HALF, a_request(flavor=with_gpus(500)), [-7, -3.5, -3.5, 0]),
    (WHOLE_AND_HALF, a_request(requested_resources=(HALF_GPU,)), [-7, -3.5, -3.5, 0]),
    (WHOLE_AND_HALF, a_request(flavor=with_gpus(1000)), [-10.5, -10.5, 0, 0]),
    (WHOLE_AND_HALF, a_request(flavor=with_gpus(1000, 1000)), [-21, -10.5, 0, 0]),
    (WHOLE_AND_HALF, a_request(extra_specs={'resources:CUSTOM_X': '1'}), [0, 0, 0, 0]),
    (PAIRS, a_request(flavor=with_gpus(500)), [-7, 0, 0, 0]),
    (NO_DEVICES, a_request(flavor=with_gpus(500)), [-7, -7, -7, -7]),
]


@pytest.mark.parametrize('offer', [worked_out, asked])
@pytest.mark.parametrize(('usual', 'request_', 'weights'), TABLE)
def test_a_host_weighs_less_by_usual_guests_that_no_longer_fit(
    usual, request_, weights, offer
):
    """A guest takes the device with the least room. Without the device, no usual guest
    that needs the device fits."""
    weigher = FragmentationWeigher(Settings(fragmentation_weight_multiplier=1.0))
    request = replace(request_, usual_guests=usual)
    assert weigher.weigh_offered(HOSTS, request, offer()) == weights


BROKEN = AskedCandidates([a_candidate('two')], [b'{"provider_summaries": {"two": 1}}'])


@pytest.mark.parametrize('candidates', [None, without_devices(), BROKEN])
def test_hosts_with_unknown_devices_weigh_as_without_devices(candidates):
    """Hosts whose devices are unknown count as hosts without devices."""
    weigher = FragmentationWeigher(Settings(fragmentation_weight_multiplier=1.0))
    for usual in (WHOLE_AND_HALF, PAIRS):
        request = a_request(flavor=with_gpus(1000, 1000), usual_guests=usual)
        assert weigher.weigh_offered(HOSTS, request, candidates) == [0, 0, 0, 0]


class Recording(FragmentationWeigher):
    """Records the hosts whose devices are compared, and the hosts that are weighed."""

    def __init__(self):
        super().__init__(Settings(fragmentation_weight_multiplier=1.0))
        self.compared = []
        self.weighed = []

    def offer_keys(self, hosts, request, candidates):
        self.compared += [host.host for host in hosts]
        return super().offer_keys(hosts, request, candidates)

    def weigh_offered(self, hosts, request, candidates):
        self.weighed += [host.host for host in hosts]
        return super().weigh_offered(hosts, request, candidates)


def raw_weights(weigher, table, candidates, hosts=HOSTS):
    """The raw weights of hosts for a guest with half a GPU."""
    weigher.compared = []
    weigher.weighed = []
    request = a_request(flavor=with_gpus(500), usual_guests=WHOLE_AND_HALF)
    table.request = request
    enabled = [Enabled(weigher)]
    weights = weigh(enabled, hosts, request, table=table, candidates=candidates)
    return weights.shares[0].raw.tolist()


NAMES = [*GPUS]
WITH_GPUS = ['two', 'one-and-half', 'half']


def nothing():
    """The offer of a request that does not ask Placement."""


def one_taken():
    return worked_out({**GPUS, 'two': (1000,)})


STORIES = [
    [(worked_out, NAMES), (asked, []), (worked_out, []), (one_taken, ['two'])],
    [(without_devices, NAMES), (worked_out, WITH_GPUS), (nothing, WITH_GPUS)],
    [(one_taken, NAMES), (asked, ['two']), (one_taken, ['two'])],
]


@pytest.mark.parametrize('story', STORIES)
def test_only_hosts_with_changed_devices_are_weighed_again(story):
    """The weights equal weights from nothing, after offers with other devices and
    without devices. Only hosts with other devices than before are weighed again."""
    table = HostTable()
    weigher = Recording()
    for make_offer, weighed in story:
        offer = make_offer()
        weights = raw_weights(weigher, table, offer)
        assert weights == raw_weights(Recording(), HostTable(), offer)
        assert weigher.weighed == weighed


class Memory:
    """A remembered answer, and claims that Placement has not counted."""

    def __init__(self):
        self.claims = []
        self.answer = RememberedAnswer(self.base_answer(GPUS))

    def base_answer(self, gpus):
        return BaseAnswer(answer_text(gpus), provider_trees.ASKED_AT)

    def claim(self, provider, **amounts):
        self.claims.append((provider, amounts))

    def refresh(self, gpus):
        """Remember a newer answer, which counts the claims."""
        newer = RememberedAnswer(self.base_answer(gpus))
        newer.follow(self.answer)
        self.answer = newer
        self.claims = []

    def offer(self):
        self.answer.subtract(self._taken)
        matched = self.answer.match(provider_trees.a_query())
        return LocalCandidates([matched], provider_trees.ASKED_AT, 1.0)

    def _taken(self, asked_at, change):
        return len(self.claims), change is None, dict(self.claims[change or 0 :])


FIRST_TAKEN = {**GPUS, 'two': (0, 1000)}
CHANGES = [
    (lambda memory: None, [], []),
    (lambda memory: memory.claim('two-0', VGPU=1000), ['two'], ['two']),
    (lambda memory: memory.claim('none', VCPU=1), ['none'], []),
    (lambda memory: memory.refresh(FIRST_TAKEN), ['none'], []),
    (lambda memory: memory.refresh({**FIRST_TAKEN, 'half': (0,)}), ['half'], ['half']),
    (
        lambda memory: memory.refresh({**GPUS, 'none': (500,)}),
        NAMES,
        ['two', 'half', 'none'],
    ),
]


def test_devices_are_compared_only_on_hosts_changed_in_the_answer():
    """Requests with the same remembered answer compare the devices of hosts with new
    claims. After the next answer, they compare the hosts that the answer changes."""
    table = HostTable()
    weigher = Recording()
    memory = Memory()
    raw_weights(weigher, table, memory.offer())
    for change, compared, weighed in CHANGES:
        change(memory)
        offer = memory.offer()
        weights = raw_weights(weigher, table, offer)
        assert weights == raw_weights(Recording(), HostTable(), offer)
        assert (weigher.compared, weigher.weighed) == (compared, weighed)


class ReadsTraits(TraitsWeigher):
    """Asks for kept weights, and does not tell the parts of the offer."""

    def request_key(self, request):
        return ()


def test_weights_by_unknown_parts_of_the_offer_are_not_kept():
    """A weigher that reads the offer without ``offer_keys`` weighs each request."""
    request = a_request(extra_specs={'trait:CUSTOM_A': 'preferred'})
    enabled = [Enabled(ReadsTraits(Settings()))]
    table = HostTable()
    raw = []
    for traits in ((), ('CUSTOM_A',)):
        providers = provider_trees.a_host('two')
        providers[0].traits = traits
        text = provider_trees.answer_text(providers)
        candidates = AskedCandidates(map(a_candidate, GPUS), [text])
        table.request = object()
        weights = weigh(enabled, HOSTS, request, table=table, candidates=candidates)
        raw.append(weights.shares[0].raw.tolist())
    assert raw == [[0, 0, 0, 0], [1, 0, 0, 0]]


def test_a_host_skipped_by_a_request_is_weighed_again_if_changed():
    """A host whose devices change while requests ask for other hosts is weighed again
    at the next request for the host."""
    table = HostTable()
    weigher = Recording()
    memory = Memory()
    raw_weights(weigher, table, memory.offer())
    memory.claim('two-0', VGPU=1000)
    raw_weights(weigher, table, memory.offer(), HOSTS[1:])
    assert weigher.weighed == []
    raw_weights(weigher, table, memory.offer())
    assert weigher.weighed == ['two']
