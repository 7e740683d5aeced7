# SPDX-License-Identifier: Apache-2.0
import socket
from types import SimpleNamespace

import pytest

from novasched.conf import loading
from novasched.conf.errors import ConfigError
from novasched.conf.redaction import redact
from novasched.conf.settings import Address, ServiceSettings, Settings, parse_ratios
from novasched.service import build


@pytest.fixture
def read(load):
    """The settings that a nova.conf of this text gives."""
    return lambda text: loading.settings(load(text))


@pytest.mark.parametrize(
    ('text', 'field', 'value'),
    [
        ('[scheduler]\nmax_attempts = 5', 'max_attempts', 5),
        ('[filter_scheduler]\nenabled_filters = A, B', 'enabled_filters', ('A', 'B')),
        (
            '[filter_scheduler]\navailable_filters = a\navailable_filters = b',
            'available_filters',
            ('a', 'b'),
        ),
        (
            '[workarounds]\ndisable_fallback_pcpu_query = true',
            'disable_fallback_pcpu_query',
            True,
        ),
        ('[DEFAULT]\nscheduler_max_attempts = 7', 'max_attempts', 7),
        ('[DEFAULT]\nscheduler_default_filters = A,B', 'enabled_filters', ('A', 'B')),
        ('[DEFAULT]\nscheduler_host_subset_size = 3', 'host_subset_size', 3),
        ('[DEFAULT]\nram_weight_multiplier = -1', 'ram_weight_multiplier', -1.0),
        (
            '[DEFAULT]\nscheduler_driver = nova.scheduler.filter_scheduler.FilterScheduler',
            'driver',
            'filter_scheduler',
        ),
        ('[scheduler]\ndriver = chance_scheduler', 'driver', 'chance_scheduler'),
        ('[DEFAULT]\nservice_down_time = 11', 'service_down_time', 11),
        ('[DEFAULT]\nservice_down_time = 10', 'service_down_time', 25),
        (
            '[DEFAULT]\nservice_down_time = 0\nreport_interval = 1',
            'service_down_time',
            2,
        ),
        (
            '[novasched]\navoided_traits = CUSTOM_HOT, HW_CPU_X86_AVX',
            'avoided_traits',
            ('CUSTOM_HOT', 'HW_CPU_X86_AVX'),
        ),
        ('[novasched]\navoided_traits =', 'avoided_traits', ()),
        ('[libvirt]\nvirt_type = kvm\n[DEFAULT]\nunknown = x', 'max_attempts', 3),
    ],
)
def test_options_and_their_older_spellings(read, text, field, value):
    """An option is read where any release since Mitaka has it; others are left
    alone."""
    assert getattr(read(text), field) == value


def test_secrets_of_all_folders_are_learned(tmp_path):
    """Also where there are several, of which the last one is not all that is read."""
    for number in range(2):
        folder = tmp_path / str(number)
        folder.mkdir()
        url = f'mysql://nova:k3pt-quiet-{number}@h/n'
        (folder / 'a.conf').write_text(
            f'[{("database", "api_database")[number]}]\nconnection = {url}'
        )
    (tmp_path / 'nova.conf').touch()
    options = [
        f'--config-file={tmp_path}/nova.conf',
        *(f'--config-dir={tmp_path}/{x}' for x in '01'),
    ]
    conf = loading.load(options, 'novasched')
    assert None not in (conf.database.connection, conf.api_database.connection)
    assert redact('k3pt-quiet-0, k3pt-quiet-1') == '***, ***'


def test_the_settings_of_the_process(load):
    """What no decision depends on; where a value is left empty, the default counts. An
    empty nova.conf gives the defaults of the models, which stand there alone."""

    def read(text):
        return loading.service_settings(load(text))

    assert loading.settings(load('')) == Settings()
    records = '/var/lib/nova/novasched/decisions.sqlite'
    assert read('') == ServiceSettings(
        host=socket.gethostname(), decisions_file=records
    )
    assert read('[novasched]\ndecisions_file =').decisions_file is None
    assert read('[scheduler]\nworkers = 0').workers == 1
    assert read('[scheduler]\nworkers =').workers == 1
    assert read(
        '[DEFAULT]\nhost = h\n[novasched]\nmetrics_bind = [::1]:18774'
    ) == ServiceSettings(
        host='h', metrics_bind=Address('::1', 18774), decisions_file=records
    )


def test_a_down_time_that_no_heartbeat_keeps_is_told(read, caplog):
    """The operator hears of the value that is taken instead."""
    read('[DEFAULT]\nservice_down_time = 10')
    assert caplog.messages == [
        'service_down_time (10 s) must exceed report_interval (10 s), using 25 s'
    ]


@pytest.mark.parametrize(
    ('group', 'setting', 'why'),
    [
        (
            'filter_scheduler',
            'host_subset_size = many',
            "invalid literal for int() with base 10: 'many'",
        ),
        (
            'filter_scheduler',
            'host_subset_size = 0',
            'Should be greater than or equal to 1',
        ),
        ('scheduler', 'max_attempts = 0', 'Should be greater than or equal to 1'),
        (
            'novasched',
            'avoided_traits = hot',
            "Value 'hot' doesn't match regex '^[A-Z0-9_]+$'",
        ),
        (
            'filter_scheduler',
            'shuffle_best_same_weighed_hosts = perhaps',
            "Unexpected boolean value 'perhaps'",
        ),
    ],
)
def test_bad_value_is_named(read, group, setting, why):
    """A value that cannot be used is refused with option and value, by the option's
    newer name."""
    with pytest.raises(ConfigError) as error:
        read(f'[{group}]\n{setting}')
    assert str(error.value) == f'[{group}] {setting}: {why}'
    with pytest.raises(
        ConfigError, match=r'^\[scheduler\] max_attempts = 0: Should be'
    ):
        read('[DEFAULT]\nscheduler_max_attempts = 0')


def test_a_missing_file_is_named():
    with pytest.raises(ConfigError, match=r'--config-file = /nowhere: not found'):
        loading.load(['--config-file', '/nowhere'], 'novasched')


@pytest.mark.parametrize(
    ('setting', 'good', 'bad'),
    [
        ([], (), ()),
        (['a=1', 'b=-0.5'], (('a', 1.0), ('b', -0.5)), ()),
        (['b=1', 'a=1', 'b=2'], (('b', 1.0), ('a', 1.0), ('b', 2.0)), ()),
        (['a= 1e2'], (('a', 100.0),), ()),
        (['a', 'a=', '=1', 'a=b', 'a=1=2'], (), ('a', 'a=', '=1', 'a=b', 'a=1=2')),
    ],
)
def test_ratios(setting, good, bad):
    """Names with numbers in their order, and whatever is neither."""
    assert parse_ratios(setting) == (good, bad)


@pytest.mark.parametrize(
    ('settings', 'level'),
    [
        ({}, 'INFO'),
        ({'query_placement_for_routed_network_aggregates': True}, 'WARNING'),
    ],
)
def test_without_neutron(load, caplog, settings, level):
    """It need not be configured; the log says what is not done then, the louder if it
    was to be done."""
    caplog.set_level('INFO')
    assert (
        build._neutron(load(''), Settings(**settings), ServiceSettings(), None) is None
    )
    (record,) = caplog.records
    assert record.levelname == level
    assert '[neutron] auth_type is not set' in record.getMessage()


def test_with_neutron(load):
    """nova's own options say where Neutron is and how often to try."""
    text = '[neutron]\nauth_type = none\nendpoint_override = http://n:9696\nhttp_retries = 5'
    conf = load(text)
    placement = SimpleNamespace(aggregates=frozenset)
    neutron = build._neutron(
        conf, Settings(), loading.service_settings(conf), placement
    )
    assert neutron.http.get_endpoint() == 'http://n:9696'
    assert (neutron.http.service_type, neutron.http.connect_retries) == ('network', 5)


def test_ratios_that_cannot_be_read(load, caplog):
    """They are left out, and nova's line says which."""
    text = '[metrics]\nweight_setting = a=1, b, c=x\n[filter_scheduler]\nimage_props_weight_setting = =1'
    settings = loading.settings(load(text))
    assert settings.metrics_weight_setting == ('a=1', 'b', 'c=x')
    assert [record.getMessage() for record in caplog.records] == [
        'Ignoring the invalid elements of the option filter_scheduler.image_props_weight_setting: =1',
        'Ignoring the invalid elements of the option metrics.weight_setting: b, c=x',
    ]
