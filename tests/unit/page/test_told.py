# SPDX-License-Identifier: Apache-2.0
from novasched.model.settings import Settings
from novasched.page import told
from novasched.records import facts
from tests.builders import a_flavor, a_host, a_request
from tests.decided import Decided, record_of

HOSTS = [
    a_host('small', ram=600),
    a_host('off', disabled=True, why='rack 4'),
    a_host('large', ram=9000),
]
SETTINGS = Settings(enabled_filters=('ComputeFilter', 'RamFilter', 'DiskFilter'))


def decided(**request):
    return record_of(Decided(HOSTS, settings=SETTINGS).ask(a_request(**request)))


def test_a_placement():
    """The first line, each host counted once, the filters that dropped any, and the best."""
    found = told.told(decided(flavor=a_flavor(name='m1', memory_mb=700)))
    assert found.line.headline == 'large: 1 of 3 hosts fit, 1 disabled, 1 lack free memory'
    assert (found.line.placed, found.line.what) == (True, '1 x m1')
    assert [(x.hosts, x.percent, x.words) for x in found.counts] == [
        ('1', 33.3, 'disabled'), ('1', 33.3, 'lack free memory'), ('1', 33.3, 'fit'),
    ]  # fmt: skip
    (search,) = found.searches
    assert search.title == 'For the server: 1 of 3 hosts passed'
    assert [(x.name, x.start, x.end, x.reasons) for x in search.stages] == [
        ('ComputeFilter', '3', '2', ('1: disabled, reason: rack 4',)),
        ('RamFilter', '2', '1', ('1: 600 MiB of memory before overcommit, 700 wanted',)),
    ]
    assert search.idle == ('DiskFilter',)
    assert [(x.host, x.chosen) for x in search.best] == [('large', True)]
    assert found.hosts == ('large',)


def test_the_same_facts_as_the_command():
    """Nothing that novaschedctl explain tells is missing."""
    record = decided(availability_zone='south')
    assert told.told(record).facts == tuple(each for each in facts.of(record) if each[1])


def test_several_servers():
    """Each server has its own search, and its own host; what decided it comes first."""
    record = decided(count=2, flavor=a_flavor(memory_mb=550))
    found = told.told(record)
    assert [x.title for x in found.searches] == [
        'For server 1 of 2: 2 of 3 hosts passed',
        'For server 2 of 2: 2 of 2 hosts passed',
    ]
    chosen = [[y.host for y in x.best if y.chosen] for x in found.searches]
    assert chosen == [[host] for host in record.result.hosts]
    refused = told.told(decided(count=20, flavor=a_flavor(memory_mb=4000)))
    assert refused.searches[0].title == 'For server 3 of 20: 0 of 1 hosts passed'
    assert refused.line.servers.endswith('and 17 others')
    assert refused.more == 0


def test_many_servers():
    """Of many servers some are told, and how many are not."""
    found = told.told(decided(count=15, flavor=a_flavor(memory_mb=1, root_gb=0)))
    assert len(found.searches) == told.LOOKS + 1
    assert found.more == 15 - told.LOOKS - 1
