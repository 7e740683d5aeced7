# SPDX-License-Identifier: Apache-2.0
"""What the names and the values in a nova.conf tell."""

import pytest

from novasched.conf import loading
from novasched.conf.settings import DEFAULT_FILTERS
from novasched.tools.check import nova_conf, options

OLD = '. It is obeyed here, while recent releases of nova pass it over'


@pytest.mark.parametrize(
    ('text', 'found'),
    [
        ('[filter_scheduler]\nmax_io_ops_per_host = 3', []),
        ('[DEFAULT]\ndebug = true\nlog-file = x\ntransport_url = rabbit://', []),
        ('[database]\nconnection = x\nmax_pool_size = 5\n[api_database]\nmax_retries = 1', []),
        ('[oslo_messaging_rabbit]\nrabbit_ha_queues = true\nssl = true', []),
        ('[placement]\nauth_type = password\nauth_url = x\nusername = y\nregion_name = z', []),
        ('[placement]\nauth_type = admin_token\nendpoint = x\ntoken = y', []),
        ('[placement]\nauth_type = nonsense\npassword = y', []),
        (
            '[filter_scheduler]\nmax_io_ops_per_hots = 3',
            ['warning [filter_scheduler] max_io_ops_per_hots: unknown; is it max_io_ops_per_host?'],
        ),
        ('[scheduler]\nzzz = 3', ['warning [scheduler] zzz: unknown: nobody reads it']),
        ('[placement]\nmy word = 3', ['warning [placement] (no name): unknown: nobody reads it']),
        (
            '[filter_schedulr]\nenabled_filters = x',
            [
                'warning [filter_schedulr]: unknown group; is it [filter_scheduler]?',
                "ok other options: 1 options that a scheduler does not read are other services'",
            ],
        ),
        (
            '[DEFAULT]\nscheduler_default_filters = x',
            [
                'warning [DEFAULT] scheduler_default_filters: deprecated: the name is '
                f'[filter_scheduler] enabled_filters{OLD}'
            ],
        ),
        (
            '[DEFAULT]\nscheduler_max_attempts = 1\n[scheduler]\nmax_attempts = 2',
            [
                'note [DEFAULT] scheduler_max_attempts: deprecated: the name is '
                '[scheduler] max_attempts, which is set too and counts'
            ],
        ),
        (
            '[placement]\nauth_plugin = none',
            ['note [placement] auth_plugin: deprecated: the name is [placement] auth_type'],
        ),
        (
            '[placement]\nos_region_name = x',
            ['note [placement] os_region_name: ignored: set region_name'],
        ),
        ('[scheduler]\ndiscover_hosts_in_cells_interval = 300', []),
        (
            '[workarounds]\ndisable_fallback_pcpu_qery = x',
            [
                'warning [workarounds] disable_fallback_pcpu_qery: unknown; '
                'is it disable_fallback_pcpu_query?'
            ],
        ),
        (
            '[DEFAULT]\nmy_ip = x\n[libvirt]\nvirt_type = y\n[workarounds]\ndisable_rootwrap = z',
            ["ok other options: 3 options that a scheduler does not read are other services'"],
        ),
    ],
)
def test_names(load, text, found):
    """The scheduler's own groups are known to the last name; of others', names are counted."""
    _, written = load(text)
    assert [
        f'{each.level} {each.subject}: {each.text}'
        for each in options.check_names(written, nova_conf.known_options(written))
    ] == found


@pytest.mark.parametrize(
    ('text', 'subject', 'why'),
    [
        ('[scheduler]\nmax_attempts = many', '[scheduler] max_attempts', "'many'"),
        ('[scheduler]\nmax_attempts = 0', '[scheduler] max_attempts', 'equal to 1'),
        ('[DEFAULT]\nscheduler_max_attempts = x', '[scheduler] max_attempts', "'x'"),
        ('[database]\nmax_retries = x', '[database] max_retries', "'x'"),
        ('[placement]\ntimeout = x', '[placement] timeout', "'x'"),
        ('[oslo_messaging_rabbit]\nssl = perhaps', '[oslo_messaging_rabbit] ssl', "'perhaps'"),
        ('[database]\nconnection = a://b:c$secret@d', '[database] connection', 'written $$'),
        ('[DEFAULT]\ntransport_url = a://b:c$secret@d', '[DEFAULT] transport_url', 'written $$'),
    ],
)
def test_values(load, text, subject, why):
    """A bad value is told, whoever declares the option, and its default stands in for it."""
    conf, written = load(text)
    all_known = nova_conf.known_options(written)
    [found] = options.check_values(conf, written, all_known)
    assert found.subject == subject
    assert why in found.text
    assert 'secret' not in found.text
    assert list(options.check_values(conf, {}, all_known)) == []
    assert loading.settings(conf).enabled_filters == DEFAULT_FILTERS


@pytest.mark.parametrize(
    ('text', 'subjects'),
    [
        ('[DEFAULT]\nservice_down_time = 61', []),
        ('[DEFAULT]\nservice_down_time = 5', ['[DEFAULT] service_down_time']),
        ('[metrics]\nweight_setting = a=1', []),
        ('[metrics]\nweight_setting = a=1, b', ['metrics_weight_setting']),
    ],
)
def test_values_together(load, text, subjects):
    """What is taken in part, or in another size, is told."""
    conf, written = load(text)
    found = options.check_together(loading.settings(conf), written)
    assert [each.subject for each in found] == subjects


@pytest.mark.parametrize(
    ('text', 'line'), [('[DEFAULT]\nfine = 1\nsecret', 3), ('secret = 1', 1), ('[secret', 1)]
)
def test_a_broken_line_is_not_quoted(load, text, line):
    """It may hold a password."""
    with pytest.raises(nova_conf.UnreadableFile) as caught:
        load(text)
    assert f'line {line}: ' in str(caught.value)
    assert 'secret' not in str(caught.value)


def test_a_value_that_is_read_at_once(load):
    """It ends the reading with one line; what is secret elsewhere is not in it."""
    with pytest.raises(nova_conf.UnreadableFile) as caught:
        load('[DEFAULT]\ndebug = perhaps secret\npassword = secret')
    assert 'perhaps ***' in str(caught.value)


def test_folders_come_after_files(tmp_path):
    """As in the daemon, the last value counts."""
    file, folder = tmp_path / 'nova.conf', tmp_path / 'nova.conf.d'
    folder.mkdir()
    file.write_text('[scheduler]\nmax_attempts = 1')
    (folder / 'b.conf').write_text('[scheduler]\nmax_attempts = 3')
    (folder / 'a.conf').write_text('[scheduler]\nmax_attempts = 2')
    conf, written = nova_conf.load([str(file)], [str(folder)])
    assert written['scheduler']['max_attempts'] == ['1', '2', '3']
    assert conf.scheduler.max_attempts == 3


def test_no_file(tmp_path):
    """There is nothing to check."""
    with pytest.raises(nova_conf.NoFile):
        nova_conf.load([str(tmp_path / 'none')], [])
