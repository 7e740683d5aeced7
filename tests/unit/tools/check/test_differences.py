# SPDX-License-Identifier: Apache-2.0
"""What differs from nova-scheduler, and which plugins load."""

import sys

import pytest

from novasched.conf import loading
from novasched.conf.settings import DEFAULT_FILTERS
from novasched.tools.check import nova_conf, options, plugins

CALM = '[novasched]\nin_flight_timeout = 0\n'


@pytest.fixture
def read(load):
    """What checks read of a nova.conf of this text."""

    def _read(text):
        conf, _ = load(text)
        return nova_conf.NovaConf(
            conf, loading.settings(conf), loading.service_settings(conf), timeout=60.0
        )

    return _read


@pytest.mark.parametrize(
    ('text', 'found'),
    [
        (CALM, []),
        ('', ['note [novasched] in_flight_timeout']),
        (f'{CALM}[scheduler]\ndriver = chance_scheduler', ['note [scheduler] driver']),
        (f'{CALM}[scheduler]\nworkers = 4', ['note [scheduler] workers']),
        (
            f'{CALM}[scheduler]\nquery_placement_for_availability_zone = false',
            [
                'note [scheduler] query_placement_for_availability_zone',
                'warning [filter_scheduler] enabled_filters',
            ],
        ),
        (
            f'{CALM}[filter_scheduler]\nenabled_filters = RamFilter,ComputeFilter',
            ['note filter RamFilter'],
        ),
    ],
)
def test_differences(read, text, found):
    """One finding for each option that means something else here."""
    assert [
        f'{each.level} {each.subject}' for each in options.check_differences(read(text))
    ] == found


def test_plugins(read):
    """Each is judged alone; what does not load names the reason."""
    settings = read(
        '[filter_scheduler]\n'
        'enabled_filters = ComputeFilter,NoSuchFilter,TrustedFilter,ImagePropertiesFilter\n'
        'available_filters = nova.scheduler.filters.all_filters\n'
        'available_filters = no.such.module\n'
        'weight_classes = nova.scheduler.weights.ram.RAMWeigher,no.Weigher\n'
        '[scheduler]\ndriver = fake_scheduler\n'
    )
    found = list(plugins.check(settings))
    assert [(str(each.level), each.subject) for each in found] == [
        ('error', 'available filter no.such.module'),
        ('ok', 'filter ComputeFilter'),
        ('error', 'filter NoSuchFilter'),
        ('error', 'filter TrustedFilter'),
        ('ok', 'filter ImagePropertiesFilter'),
        ('ok', 'weigher nova.scheduler.weights.ram.RAMWeigher'),
        ('error', 'weigher no.Weigher'),
        ('error', 'driver fake_scheduler'),
    ]
    texts = {each.subject: each.text for each in found}
    assert 'ModuleNotFoundError' in texts['available filter no.such.module']
    assert 'attestation' in texts['filter TrustedFilter']


def test_a_plugin_that_exits(read, tmp_path, monkeypatch):
    """It ends neither the check nor the plugins after it."""
    (tmp_path / 'leaving.py').write_text('import sys\nsys.exit(3)\n')
    monkeypatch.syspath_prepend(str(tmp_path))
    text = '[filter_scheduler]\nweight_classes = leaving.Weigher,no.Weigher\n'
    found = {each.subject: each for each in plugins.check(read(text))}
    assert found['weigher leaving.Weigher'].text == 'it ends the process with sys.exit(3)'
    assert 'weigher no.Weigher' in found


def test_every_default_loads(read):
    """Without any option all filters, weighers and the driver load."""
    found = list(plugins.check(read('')))
    assert {str(each.level) for each in found} == {'ok'}
    assert len(found) == len(DEFAULT_FILTERS) + 2


@pytest.mark.parametrize(('there', 'level'), [(True, 'ok'), (False, 'error')])
def test_libraries_for_traces(read, monkeypatch, there, level):
    """Where traces are wanted they load, or it is said what to install."""
    if not there:
        monkeypatch.delitem(sys.modules, 'novasched.observe.tracing.exporting', raising=False)
        monkeypatch.setitem(sys.modules, 'opentelemetry', None)
    url = '[novasched]\ntracing_endpoint = http://me:Kraken77@collector\n'
    *_, last = plugins.check(read(url))
    assert (str(last.level), last.subject) == (level, 'libraries for traces')
    assert there or 'pip install novasched[tracing]' in last.text
    assert 'Kraken77' not in last.text


@pytest.mark.parametrize(
    ('text', 'found'),
    [
        ('', []),
        ('[novasched]\npage = true', ['error [novasched] page']),
        ('[novasched]\npage = true\nmetrics_bind = 127.0.0.1:9105', ['ok [novasched] page']),
    ],
)
def test_the_page(read, text, found):
    """It is told before the switch where it can be shown, and where it cannot."""
    assert [f'{each.level} {each.subject}' for each in plugins.check_page(read(text))] == found
