# SPDX-License-Identifier: Apache-2.0
import pytest

from novasched.conf.settings import Settings
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


@pytest.fixture
def page_of(tmp_path):
    def words(**request):
        record = record_of(Decided(HOSTS, settings=SETTINGS).ask(a_request(**request)))
        writer = RecordWriter(str(tmp_path / 'decisions'), 10)
        writer.write(record)
        writer.close()
        return seen(ask(a_page(Cells({}), tmp_path / 'decisions'), f'/decisions/{record.id}')).text

    return words


def test_a_placement(page_of):
    """The first line, each host counted once, the facts that the command tells, the filters that
    dropped hosts with their reasons, the others by name, and the chosen host."""
    text = page_of(flavor=a_flavor(name='m1', memory_mb=700), availability_zone='south')
    for words in (
        'large: 1 of 3 hosts fit, 1 disabled, 1 lack free memory placed large',
        'also zone south', '1 disabled', '1 lack free memory', '1 fit',
        'For the server: 1 of 3 hosts passed',
        'ComputeFilter 3 2 1: disabled, reason: rack 4',
        'RamFilter 2 1 1: 600 MiB of memory before overcommit, 700 wanted',
        'None dropped by DiskFilter.',
        'large chosen',
    ):  # fmt: skip
        assert words in text


def test_several_servers(page_of):
    """Each server has its own search, and its own host; what decided it comes first."""
    text = page_of(count=2, flavor=a_flavor(memory_mb=550))
    first, second = (
        text.index(f'For server {words} hosts passed')
        for words in ('1 of 2: 2 of 3', '2 of 2: 2 of 2')
    )
    assert first < text.index('large chosen') < second < text.index('small chosen')
    text = page_of(count=20, flavor=a_flavor(memory_mb=4000))
    assert text.index('For server 3 of 20: 0 of 1 hosts passed') < text.index('For server 1 of 20')
    assert 'and 17 others' in text
    assert 'more servers of this request' not in text


def test_many_servers(page_of):
    """Of many servers some are told, and how many are not."""
    text = page_of(count=15, flavor=a_flavor(memory_mb=1, root_gb=0))
    assert text.count('For server ') == 11
    assert '4 more servers of this request are in novaschedctl explain' in text
