# SPDX-License-Identifier: Apache-2.0
"""Plugins of other packages, asked about a made-up host before the first request."""

from textwrap import dedent

import pytest

from novasched.conf import loading as conf_loading
from novasched.conf.errors import ConfigError
from novasched.conf.settings import Settings
from novasched.plugins import loading, rehearsal
from novasched.plugins.nova_compat.import_stubs import share_options

HEAD = """
    import os
    import sys
    import nova.conf
    from nova.scheduler import filters, weights
    from oslo_config import cfg

    CONF = nova.conf.CONF
"""
READS: dict[str, tuple[str, object]] = {
    'an option of nova-compute': ('CONF.reserved_host_memory_mb', 512),
    'a value in nova.conf': ('CONF.compute.max_concurrent_disk_ops', 7),
    'an old name in nova.conf': (
        'CONF.compute.resource_provider_association_refresh',
        9,
    ),
    'an option of the scheduler': ('CONF.filter_scheduler.host_subset_size', 1),
    'an option of nova-api': ('CONF.api.max_limit', 1000),
    'an option of several values': ('CONF.pci.alias', ['{"name": "a"}']),
    'an option that refers to another': (
        'bool(CONF.my_ip) and CONF.my_block_storage_ip == CONF.my_ip',
        True,
    ),
    'the host': ('bool(CONF.host)', True),
}
WRITTEN = """
    [compute]
    max_concurrent_disk_ops = 7
    resource_provider_association_refresh = 9
    [pci]
    alias = {"name": "a"}
"""


@pytest.fixture
def acme(tmp_path, monkeypatch):
    """A function that loads a filter and a weigher of a module with this text."""
    monkeypatch.syspath_prepend(tmp_path)

    def make(text, *arguments):
        (tmp_path / 'acme_plugin.py').write_text(dedent(HEAD) + dedent(text))
        conf = conf_loading.load(list(arguments), 'novasched')
        settings = Settings(
            available_filters=('acme_plugin.Acme',),
            enabled_filters=('Acme',),
            weight_classes=('acme_plugin.AcmeWeigher',),
        )

        def prepare():
            share_options(conf)

        return [
            *loading.filters(settings, prepare),
            *loading.weighers(settings, prepare),
        ]

    return make


def plugins_that(statement):
    """A filter and a weigher that execute a statement."""
    return f"""
    class Acme(filters.BaseHostFilter):
        def host_passes(self, host_state, spec_obj):
            {statement}
            return True

    class AcmeWeigher(weights.BaseHostWeigher):
        def _weigh_object(self, host_state, weight_properties):
            spec_obj = weight_properties
            {statement}
            return 1.0
    """


@pytest.mark.parametrize(('expression', 'value'), READS.values(), ids=READS)
def test_a_plugin_reads_options_of_nova(acme, tmp_path, expression, value):
    """A plugin reads options of every service of nova, with the values of nova.conf and
    the defaults of nova."""
    (tmp_path / 'nova.conf').write_text(dedent(WRITTEN))
    statement = f'assert ({expression}) == {value!r}, {expression}'
    plugins = acme(plugins_that(statement), f'--config-file={tmp_path}/nova.conf')
    assert [rehearsal.rehearse(plugin) for plugin in plugins] == [None, None]


def test_a_plugin_reads_options_of_all_config_dirs(acme, tmp_path):
    """With several --config-dir, a plugin gets the options of all folders."""
    folders = []
    for name, number in (('a', 7), ('b', 9)):
        folder = tmp_path / name
        folder.mkdir()
        (folder / 'x.conf').write_text(f'[acme]\n{name} = {number}\n')
        folders.append(f'--config-dir={folder}')
    text = plugins_that('assert (CONF.acme.a, CONF.acme.b) == (7, 9)')
    declared = "CONF.register_opts([cfg.IntOpt('a'), cfg.IntOpt('b')], 'acme')\n"
    plugins = acme(declared + dedent(text), *folders)
    assert [rehearsal.rehearse(plugin) for plugin in plugins] == [None, None]


def test_a_plugin_may_declare_an_option_of_nova(acme):
    """A plugin may declare an option that nova declares, as it may in nova."""
    declared = "CONF.register_opt(cfg.IntOpt('reserved_host_memory_mb', default=512))\n"
    text = plugins_that('assert CONF.reserved_host_memory_mb == 512')
    plugins = acme(declared + dedent(text))
    assert [rehearsal.rehearse(plugin) for plugin in plugins] == [None, None]


@pytest.mark.parametrize(
    ('statement', 'name'),
    [
        ('CONF.reserved_host_memory', '[DEFAULT] reserved_host_memory'),
        ('CONF.compute.nonsense', '[compute] nonsense'),
        ("CONF.clear_override('rack', group='nowhere')", '[nowhere]'),
        ('CONF.nowhere.rack', '[DEFAULT] nowhere'),
    ],
)
def test_a_plugin_that_reads_an_undeclared_option_is_refused(acme, statement, name):
    """The error names the option of nova.conf that enables the plugin, the plugin, and
    the option that is not declared. The start ends with the error."""
    acme_filter, acme_weigher = acme(plugins_that(statement))
    for plugin, option in (
        (acme_filter, 'enabled_filters = Acme'),
        (acme_weigher, 'weight_classes = AcmeWeigher'),
    ):
        for call in (rehearsal.rehearse, lambda one: rehearsal.rehearse_all([one])):
            with pytest.raises(ConfigError) as caught:
                call(plugin)
            assert str(caught.value) == (
                f'[filter_scheduler] {option}: the plugin reads {name}, which nova '
                'does not declare'
            )


@pytest.mark.parametrize(
    ('statement', 'why'),
    [
        ("host_state.stats['licences']", "KeyError: 'licences'"),
        ('host_state.numa_topology.cells', 'AttributeError: '),
        ('host_state.rack', 'NotKnown: HostState.rack is not known to novasched'),
        ("spec_obj.flavor.extra_specs['a:b']", "KeyError: 'a:b'"),
        ('nova.conf.nonsense', 'AttributeError: '),
        ('1 / 0', 'ZeroDivisionError: '),
    ],
)
def test_other_errors_of_a_plugin_are_only_warnings(acme, caplog, statement, why):
    """An error that may come from the made-up data is a warning, and the start goes
    on."""
    for plugin in acme(plugins_that(statement)):
        warning = rehearsal.rehearse(plugin)
        assert warning is not None
        assert warning.startswith(f'{plugin.name} raised {why}')
        rehearsal.rehearse_all([plugin])


@pytest.mark.parametrize(
    'statement', ['os._exit(3)', 'sys.exit(3)', 'os.kill(os.getpid(), 9)']
)
def test_a_plugin_that_ends_the_process_does_not_end_the_daemon(
    acme, caplog, statement
):
    """A plugin that ends its process does not end the daemon."""
    rehearsal.rehearse_all(acme(plugins_that(statement)))
    assert (
        'Acme, AcmeWeigher about a made-up host and request: the process ended early, '
        in (caplog.text)
    )


def test_a_plugin_that_hangs_does_not_stop_the_daemon(acme, caplog, monkeypatch):
    """A plugin that does not answer in time does not stop the daemon."""
    monkeypatch.setattr(rehearsal, 'PLUGIN_TIMEOUT_S', 0.1)
    rehearsal.rehearse_all(acme(plugins_that('os.read(os.pipe()[0], 1)')))
    assert 'made-up host and request: no answer within 0.1 s' in caplog.text


def test_built_in_plugins_pass_the_rehearsal():
    """Each built-in filter and weigher answers about the made-up host."""
    filters = list(loading._entry_points('novasched.filters'))
    settings = Settings(enabled_filters=tuple(filters))
    plugins = [*loading.filters(settings), *loading.weighers(settings)]
    assert [rehearsal.rehearse(plugin) for plugin in plugins] == [None] * len(plugins)
    assert not any(map(loading.is_foreign, plugins))
