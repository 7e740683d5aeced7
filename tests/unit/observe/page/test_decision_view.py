# SPDX-License-Identifier: Apache-2.0
import pytest

from novasched.conf.settings import Settings
from novasched.observe.page import decision_view
from novasched.observe.records import render
from novasched.observe.records.store import RecordWriter
from tests.lab.builders import a_flavor, a_host, a_request
from tests.lab.decided import Decided, record_of
from tests.lab.page_client import ask, seen
from tests.lab.page_sample import Cells, a_page

HOSTS = [
    a_host('small', ram=600),
    a_host('off', disabled=True, why='rack 4'),
    a_host('large', ram=9000),
]
SETTINGS = Settings(enabled_filters=('ComputeFilter', 'RamFilter', 'DiskFilter'))


def decided(**request):
    return record_of(Decided(HOSTS, settings=SETTINGS).ask(a_request(**request)))


@pytest.fixture
def page_of(tmp_path):
    def words(**request):
        record = decided(**request)
        writer = RecordWriter(str(tmp_path / 'decisions'), 10)
        writer.write(record)
        writer.close()
        return seen(ask(a_page(Cells({}), tmp_path / 'decisions'), f'/decisions/{record.id}')).text

    return words


def test_a_placement():
    """The first line, each host counted once, and the search with the chosen host."""
    record = decided(flavor=a_flavor(name='m1', memory_mb=700))
    found = decision_view.view(record)
    assert found.line.headline == 'large: 1 of 3 hosts fit, 1 disabled, 1 lack free memory'
    assert (found.line.placed, found.line.what) == (True, '1 x m1')
    assert found.counts == {'disabled': 1, 'lack free memory': 1, 'fit': 1}
    (search,) = found.searches
    assert search.title == 'For the server: 1 of 3 hosts passed'
    assert search.attempt == record.looks[0]
    assert (search.chosen, [x.host for x in search.attempt.best]) == ('large', ['large'])
    assert found.hosts == ('large',)


def test_the_same_facts_as_the_command():
    """Nothing that novaschedctl explain tells is missing."""
    record = decided(availability_zone='south')
    assert decision_view.view(record).facts == tuple(render.facts(record))


def test_filters_and_best_hosts(page_of):
    """The page has the filters that dropped hosts with their reasons, the others by name, and
    marks the chosen host."""
    text = page_of(flavor=a_flavor(memory_mb=700))
    assert 'ComputeFilter 3 2 1: disabled, reason: rack 4' in text
    assert 'RamFilter 2 1 1: 600 MiB of memory before overcommit, 700 wanted' in text
    assert 'None dropped by DiskFilter.' in text
    assert 'large chosen' in text


def test_several_servers():
    """Each server has its own search, and its own host; what decided it comes first."""
    record = decided(count=2, flavor=a_flavor(memory_mb=550))
    found = decision_view.view(record)
    assert [x.title for x in found.searches] == [
        'For server 1 of 2: 2 of 3 hosts passed',
        'For server 2 of 2: 2 of 2 hosts passed',
    ]
    assert tuple(x.chosen for x in found.searches) == record.result.hosts
    refused = decision_view.view(decided(count=20, flavor=a_flavor(memory_mb=4000)))
    assert refused.searches[0].title == 'For server 3 of 20: 0 of 1 hosts passed'
    assert refused.line.servers.endswith('and 17 others')
    assert refused.more == 0


def test_many_servers():
    """Of many servers some are told, and how many are not."""
    found = decision_view.view(decided(count=15, flavor=a_flavor(memory_mb=1, root_gb=0)))
    assert len(found.searches) == decision_view.MAX_SEARCHES + 1
    assert found.more == 15 - decision_view.MAX_SEARCHES - 1
