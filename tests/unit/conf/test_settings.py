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
    """A function that reads the settings of a nova.conf."""

    def read_settings(text):
        return loading.settings(load(text))

    return read_settings


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
            '[DEFAULT]\n'
            'scheduler_driver = nova.scheduler.filter_scheduler.FilterScheduler',
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
def test_options_are_read_by_current_and_older_names(read, text, field, value):
    """Options are read by the names of all releases since Mitaka. Unknown options are
    ignored."""
    assert getattr(read(text), field) == value


def test_secrets_of_all_folders_are_learned(tmp_path):
    """Several ``--config-dir`` are read, not only the last."""
    for number, group in enumerate(('database', 'api_database')):
        folder = tmp_path / str(number)
        folder.mkdir()
        url = f'mysql://nova:k3pt-quiet-{number}@h/n'
        (folder / 'a.conf').write_text(f'[{group}]\nconnection = {url}')
    (tmp_path / 'nova.conf').touch()

    options = [
        f'--config-file={tmp_path}/nova.conf',
        f'--config-dir={tmp_path}/0',
        f'--config-dir={tmp_path}/1',
    ]
    conf = loading.load(options, 'novasched')

    assert None not in (conf.database.connection, conf.api_database.connection)
    assert redact('k3pt-quiet-0, k3pt-quiet-1') == '***, ***'


def test_an_empty_nova_conf_gives_the_default_settings(load):
    """An empty value of an option means its default. An empty nova.conf gives the
    defaults of the settings."""

    def read(text):
        return loading.service_settings(load(text))

    assert loading.settings(load('')) == Settings()

    records = '/var/lib/nova/novasched/decisions.sqlite'
    host = socket.gethostname()
    assert read('') == ServiceSettings(host=host, decisions_file=records)

    assert read('[novasched]\ndecisions_file =').decisions_file is None
    assert read('[scheduler]\nworkers = 0').workers == 1
    assert read('[scheduler]\nworkers =').workers == 1

    text = '[DEFAULT]\nhost = h\n[novasched]\nmetrics_bind = [::1]:18774'
    address = Address('::1', 18774)
    assert read(text) == ServiceSettings(
        host='h', metrics_bind=address, decisions_file=records
    )


def test_a_down_time_not_above_the_report_interval_is_logged(read, caplog):
    """The log has the value that is used instead."""
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
def test_the_error_of_an_invalid_value_names_option_and_value(
    read, group, setting, why
):
    """The error of an invalid value has the current name of the option and the
    value."""
    with pytest.raises(ConfigError) as error:
        read(f'[{group}]\n{setting}')
    assert str(error.value) == f'[{group}] {setting}: {why}'

    by_current_name = r'^\[scheduler\] max_attempts = 0: Should be'
    with pytest.raises(ConfigError, match=by_current_name):
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
def test_ratios_are_parsed_and_invalid_elements_are_returned(setting, good, bad):
    """The parser returns the pairs in order, and the invalid elements."""
    assert parse_ratios(setting) == (good, bad)


@pytest.mark.parametrize(
    ('settings', 'level'),
    [
        ({}, 'INFO'),
        ({'query_placement_for_routed_network_aggregates': True}, 'WARNING'),
    ],
)
def test_a_missing_neutron_section_is_logged(load, caplog, settings, level):
    """Without ``[neutron]``, the log says so; as a warning if an option needs
    Neutron."""
    caplog.set_level('INFO')

    neutron = build._neutron(
        load(''), Settings(**settings), ServiceSettings(), None, build.http_adapter
    )

    assert neutron is None
    (record,) = caplog.records
    assert record.levelname == level
    assert '[neutron] auth_type is not set' in record.getMessage()


def test_the_neutron_section_sets_endpoint_and_retries(load):
    """``[neutron]`` has the endpoint and the number of retries."""
    conf = load("""
[neutron]
auth_type = none
endpoint_override = http://n:9696
http_retries = 5
""")
    service = loading.service_settings(conf)
    placement = SimpleNamespace(aggregates=frozenset)

    neutron = build._neutron(conf, Settings(), service, placement, build.http_adapter)

    assert neutron.http.get_endpoint() == 'http://n:9696'
    assert neutron.http.service_type == 'network'
    assert neutron.http.connect_retries == 5


def test_invalid_elements_of_weight_settings_are_logged(load, caplog):
    """The log lists the invalid elements in the words of nova."""
    conf = load("""
[metrics]
weight_setting = a=1, b, c=x
[filter_scheduler]
image_props_weight_setting = =1
""")

    settings = loading.settings(conf)

    assert settings.metrics_weight_setting == ('a=1', 'b', 'c=x')
    ignoring = 'Ignoring the invalid elements of the option'
    assert caplog.messages == [
        f'{ignoring} filter_scheduler.image_props_weight_setting: =1',
        f'{ignoring} metrics.weight_setting: b, c=x',
    ]
