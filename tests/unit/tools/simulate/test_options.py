# SPDX-License-Identifier: Apache-2.0
"""Options that are changed for a simulation."""

import pytest

from novasched.conf import loading
from novasched.conf.errors import ConfigError
from novasched.tools.simulate import running


@pytest.fixture
def conf(tmp_path):
    (tmp_path / 'nova.conf').write_text('[pci]\nalias = {"name": "a"}\nalias = {"name": "b"}\n')
    return loading.load(['--config-file', str(tmp_path / 'nova.conf')], 'novasched')


@pytest.mark.parametrize(
    ('text', 'field', 'value'),
    [
        ('filter_scheduler.ram_weight_multiplier=-1', 'ram_weight_multiplier', -1.0),
        ('filter_scheduler.enabled_filters=A,B', 'enabled_filters', ('A', 'B')),
        ('filter_scheduler.available_filters=a,b', 'available_filters', ('a', 'b')),
        ('metrics.required = false', 'metrics_required', False),
        ('scheduler.max_placement_results=7', 'max_placement_results', 7),
        ('DEFAULT.default_availability_zone=z', 'default_availability_zone', 'z'),
    ],
)
def test_an_option(conf, text, field, value):
    """It has the value that is given, of the kind that it is of."""
    running.change_options(conf, [text])
    assert getattr(loading.settings(conf), field) == value


@pytest.mark.parametrize(
    ('text', 'why'),
    [
        ('ram_weight_multiplier', '--set = ram_weight_multiplier: GROUP.NAME=VALUE is needed'),
        ('scheduler.nothing=1', '--set scheduler.nothing = 1: no decision depends on'),
        ('database.connection=x', '--set database.connection = x: no decision depends on'),
        ('scheduler.workers=2', '--set scheduler.workers = 2: no decision depends on'),
        ('filter_scheduler.host_subset_size=0', '--set filter_scheduler.host_subset_size = 0: '),
        ('filter_scheduler.ram_weight_multiplier=x', '--set filter_scheduler.ram_weight_'),
    ],
)
def test_what_cannot_be(conf, text, why):
    """It is named, in one line."""
    with pytest.raises(ConfigError) as found:
        running.change_options(conf, [text])
    assert str(found.value).startswith(why)
    assert '\n' not in str(found.value)


def test_aliases(conf):
    """nova-api's option has all of its values."""
    assert running.pci_aliases(conf) == ['{"name": "a"}', '{"name": "b"}']
