# SPDX-License-Identifier: Apache-2.0
import pytest

from novasched import conf
from novasched.errors import ConfigError
from novasched.model.settings import Settings


@pytest.fixture
def read(tmp_path):
    """The settings that a nova.conf of this text gives."""

    def _read(text):
        path = tmp_path / 'nova.conf'
        path.write_text(text)
        return conf.settings(conf.load(['--config-file', str(path)], 'novasched'))

    return _read


def test_defaults_are_novas(read):
    """An empty nova.conf gives the defaults of the model, which stand there alone."""
    assert read('') == Settings()


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
        ('[workarounds]\ndisable_fallback_pcpu_query = true', 'disable_fallback_pcpu_query', True),
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
        ('[DEFAULT]\nservice_down_time = 0\nreport_interval = 1', 'service_down_time', 2),
        ('[libvirt]\nvirt_type = kvm\n[DEFAULT]\nunknown = x', 'max_attempts', 3),
    ],
)
def test_options_and_their_older_spellings(read, text, field, value):
    """An option is read where any release since Mitaka has it; others are left alone."""
    assert getattr(read(text), field) == value


def test_a_down_time_that_no_heartbeat_keeps_is_told(read, caplog):
    """The operator hears of the value that is taken instead."""
    read('[DEFAULT]\nservice_down_time = 10')
    assert caplog.messages == [
        'service_down_time (10 s) must be more than report_interval (10 s); taking 25 s for it'
    ]


@pytest.mark.parametrize(
    ('text', 'message'),
    [
        (
            '[filter_scheduler]\nhost_subset_size = many',
            "[filter_scheduler] host_subset_size = many: invalid literal for int() with base 10: 'many'",
        ),
        (
            '[filter_scheduler]\nhost_subset_size = 0',
            '[filter_scheduler] host_subset_size = 0: Should be greater than or equal to 1',
        ),
        (
            '[DEFAULT]\nscheduler_max_attempts = 0',
            '[scheduler] max_attempts = 0: Should be greater than or equal to 1',
        ),
        (
            '[filter_scheduler]\nshuffle_best_same_weighed_hosts = perhaps',
            "[filter_scheduler] shuffle_best_same_weighed_hosts = perhaps: Unexpected boolean value 'perhaps'",
        ),
    ],
)
def test_bad_value_is_named(read, text, message):
    """A value that cannot be used is refused with option and value."""
    with pytest.raises(ConfigError) as error:
        read(text)
    assert str(error.value) == message


def test_unreadable_files_are_named(read, tmp_path):
    """A missing file, or one that is no configuration, is refused by name."""
    with pytest.raises(ConfigError, match=r'--config-file = /nowhere: not found'):
        conf.load(['--config-file', '/nowhere'], 'novasched')
    with pytest.raises(ConfigError, match=r'--config-file = .*nova.conf: line 1: No'):
        read('what is this\n')
