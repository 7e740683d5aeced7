# SPDX-License-Identifier: Apache-2.0
import pytest

from novasched import conf, service
from novasched.model.settings import Settings


@pytest.fixture
def load(tmp_path):
    """The options that a nova.conf of this text gives."""

    def _load(text):
        path = tmp_path / 'nova.conf'
        path.write_text(text)
        return conf.load(['--config-file', str(path)], 'novasched')

    return _load


@pytest.mark.parametrize(
    ('settings', 'level'),
    [({}, 'INFO'), ({'query_placement_for_routed_network_aggregates': True}, 'WARNING')],
)
def test_without_neutron(load, caplog, settings, level):
    """It need not be configured; the log says what is not done then, the louder if it
    was to be done."""
    caplog.set_level('INFO')
    assert service._network(load(''), Settings(**settings), None) is None
    (record,) = caplog.records
    assert (record.levelname, '[neutron] auth_type is not set' in record.getMessage()) == (
        level,
        True,
    )


def test_with_neutron(load):
    """nova's own options say where Neutron is and how often to try."""
    text = '[neutron]\nauth_type = none\nendpoint_override = http://n:9696\nhttp_retries = 5'
    neutron = service._network(load(text), Settings(), None)
    assert neutron.http.get_endpoint() == 'http://n:9696'
    assert (neutron.http.service_type, neutron.http.connect_retries) == ('network', 5)


def test_ratios_that_cannot_be_read(load, caplog):
    """They are left out, and nova's line says which."""
    text = '[metrics]\nweight_setting = a=1, b, c=x\n[filter_scheduler]\nimage_props_weight_setting = =1'
    settings = conf.settings(load(text))
    assert settings.metrics_weight_setting == ('a=1', 'b', 'c=x')
    assert [record.getMessage() for record in caplog.records] == [
        'Ignoring the invalid elements of the option filter_scheduler.image_props_weight_setting: =1',
        'Ignoring the invalid elements of the option metrics.weight_setting: b, c=x',
    ]
