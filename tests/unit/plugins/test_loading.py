# SPDX-License-Identifier: Apache-2.0
import functools
from importlib.metadata import entry_points
from textwrap import dedent

import pytest
from oslo_config import cfg

from novasched.conf import loading as conf_loading
from novasched.conf.errors import ConfigError
from novasched.conf.settings import ALL_FILTERS, ALL_WEIGHERS, DEFAULT_FILTERS, Settings
from novasched.plugins import loading
from novasched.plugins.nova_compat.import_stubs import share_options
from novasched.scheduler.drivers import SchedulerDeps
from novasched.scheduler.drivers.chance_scheduler import ChanceScheduler
from novasched.scheduler.drivers.filter_scheduler import FilterScheduler
from novasched.scheduler.plugin import Data

STYLE = 'tests.unit.plugins.nova_style'
AVAILABLE = '[filter_scheduler] available_filters'
ENABLED = '[filter_scheduler] enabled_filters'
WEIGHTS = '[filter_scheduler] weight_classes'
DRIVER = '[scheduler] driver'

BUILT_IN = sorted(entry_points(group='novasched.weighers').names)
ENTRY_POINTS = f"""
    [novasched.filters]
    QuietestFilter = {STYLE}:QuietestFilter
    ComputeFilter = {STYLE}:QuietestFilter
    BrokenFilter = acme_inventory:BrokenFilter
    NoFilter = {STYLE}:NameWeigher

    [novasched.weighers]
    NameWeigher = {STYLE}:NameWeigher

    [novasched.drivers]
    acme = {__name__}:AcmeDriver
"""


class AcmeDriver(ChanceScheduler):
    """A driver of another package."""


@pytest.fixture(autouse=True)
def acme(tmp_path, monkeypatch):
    """A package with these entry points is installed."""
    metadata = tmp_path / 'acme_plugins-1.0.dist-info'
    metadata.mkdir()
    (metadata / 'METADATA').write_text(
        'Metadata-Version: 2.1\nName: acme\nVersion: 1.0\n'
    )
    (metadata / 'entry_points.txt').write_text(dedent(ENTRY_POINTS))
    monkeypatch.syspath_prepend(tmp_path)


def names(plugins):
    return [plugin.name for plugin in plugins]


@pytest.mark.parametrize(
    ('available', 'enabled'),
    [
        ([ALL_FILTERS], DEFAULT_FILTERS),
        ([ALL_FILTERS, f'{STYLE}.RackFilter'], ('RackFilter', 'ComputeFilter')),
        (
            [f'{STYLE}.RackFilter', f'{STYLE}.QuietestFilter'],
            ('QuietestFilter', 'RackFilter'),
        ),
        ([f'{STYLE}:RackFilter'], ('RackFilter',)),
        ([f'{STYLE}.rack_filters'], ('SureFilter',)),
        (['nova.scheduler.filters.compute_filter.ComputeFilter'], ('ComputeFilter',)),
        (
            ['nova.scheduler.filters.affinity_filter.ServerGroupAffinityFilter'],
            ('ServerGroupAffinityFilter',),
        ),
        (['ComputeFilter'], ('ComputeFilter',)),
        ([ALL_FILTERS], ('QuietestFilter', 'ComputeFilter')),
        ([ALL_FILTERS], ()),
    ],
)
def test_available_filters_load_in_the_order_of_enabled_filters(available, enabled):
    """Filters have the order of enabled_filters. available_filters may name the
    built-in filters and the filters of installed packages, nova's paths of built-in
    filters, classes, and functions that return classes."""
    settings = Settings(
        available_filters=tuple(available), enabled_filters=tuple(enabled)
    )
    assert names(loading.filters(settings)) == list(enabled)


def test_a_later_available_filter_replaces_a_built_in_filter():
    """The later value of available_filters is taken, as in nova."""
    settings = Settings(
        available_filters=(ALL_FILTERS, f'{STYLE}.ComputeFilter'),
        enabled_filters=('ComputeFilter',),
    )
    [plugin] = loading.filters(settings)
    assert Data.CALLER in plugin.reads


@pytest.mark.parametrize(
    ('classes', 'found'),
    [
        (['nova.scheduler.weights.ram.RAMWeigher'], ['RAMWeigher']),
        (
            ['nova.scheduler.weights.cpu.CPUWeigher', f'{STYLE}.NameWeigher'],
            ['CPUWeigher', 'NameWeigher'],
        ),
        (
            [f'{STYLE}.NameWeigher', f'{STYLE}.NameWeigher'],
            ['NameWeigher', 'NameWeigher'],
        ),
        (['DiskWeigher', 'NameWeigher'], ['DiskWeigher', 'NameWeigher']),
        ([], []),
        ([ALL_WEIGHERS], BUILT_IN),
    ],
)
def test_weighers_are_loaded_from_weight_classes(classes, found):
    """weight_classes takes nova's paths of built-in weighers, nova's word for all of
    them, and paths of other weighers. As in nova, a weigher that is named twice weighs
    twice. The installation of a package enables no weigher."""
    loaded = names(loading.weighers(Settings(weight_classes=tuple(classes))))
    if found is BUILT_IN:
        loaded.sort()
    assert loaded == found


def test_an_entry_point_with_a_built_in_name_is_ignored(caplog):
    """An entry point with the name of a built-in filter is ignored with a warning."""
    (plugin,) = loading.filters(Settings(enabled_filters=('ComputeFilter',)))
    assert type(plugin).__module__ == 'novasched.scheduler.filters.compute'
    assert (
        f'Ignoring the entry point ComputeFilter = {STYLE}:QuietestFilter'
        in caplog.text
    )


TRUSTED = 'nova.scheduler.filters.trusted_filter.TrustedFilter'
OFFERED = (ALL_FILTERS, f'{STYLE}.SureFilter', f'{STYLE}.RefusesToStart')
SETTINGS = {
    ENABLED: lambda value: {'available_filters': OFFERED, 'enabled_filters': (value,)},
    AVAILABLE: lambda value: {
        'available_filters': (value,),
        'enabled_filters': ('RackFilter',),
    },
    WEIGHTS: lambda value: {'weight_classes': (value,)},
    DRIVER: lambda value: {'driver': value},
}
LOADERS = {WEIGHTS: loading.weighers, DRIVER: loading.driver}


@pytest.mark.parametrize(
    ('option', 'value', 'why'),
    [
        (ENABLED, 'RackFilter', ', RefusesToStart, '),
        (
            ENABLED,
            'BrokenFilter',
            "ModuleNotFoundError: No module named 'acme_inventory'",
        ),
        (ENABLED, 'NoFilter', 'NameWeigher is not a filter'),
        (ENABLED, 'TrustedFilter', 'it needs an attestation server'),
        (ENABLED, 'RefusesToStart', 'RuntimeError: the inventory is not there'),
        (AVAILABLE, TRUSTED, 'it needs an attestation server'),
        (
            AVAILABLE,
            'no.such.module.Filter',
            "ModuleNotFoundError: No module named 'no'",
        ),
        (AVAILABLE, f'{STYLE}.NoSuch', 'AttributeError'),
        (
            AVAILABLE,
            f'{STYLE}.NoFilter',
            'a filter: not a subclass of novasched.scheduler.filters.Filter, and'
            ' without a method filter_all()',
        ),
        (AVAILABLE, f'{STYLE}.CONF', 'is not a filter'),
        (AVAILABLE, '.', 'ValueError'),
        (WEIGHTS, 'NoSuch', 'not found; available: '),
        (WEIGHTS, f'{STYLE}.weighers_and_more', 'RackFilter is not a weigher'),
        (DRIVER, 'no_such', 'not found; available: '),
        (DRIVER, 'fake_scheduler', "it was there for nova's own tests"),
        (
            DRIVER,
            f'{STYLE}.RackFilter',
            'is not a driver: it is no subclass of novasched.scheduler.drivers.Driver',
        ),
        (DRIVER, 'no.such.Driver', 'ModuleNotFoundError'),
    ],
)
def test_a_load_error_names_the_option_the_value_and_the_reason(option, value, why):
    """The start ends with one line about the option, the value and the reason. A broken
    entry point matters only if an option names the entry point."""
    with pytest.raises(ConfigError) as refusal:
        LOADERS.get(option, loading.filters)(Settings(**SETTINGS[option](value)))
    text = str(refusal.value)
    assert text.startswith(f'{option} = {value}: ')
    assert why in text
    assert '\n' not in text


@pytest.mark.parametrize(
    ('name', 'driver'),
    [
        ('filter_scheduler', FilterScheduler),
        ('chance_scheduler', ChanceScheduler),
        ('acme', AcmeDriver),
        (
            'novasched.scheduler.drivers.chance_scheduler.ChanceScheduler',
            ChanceScheduler,
        ),
        (
            'novasched.scheduler.drivers.chance_scheduler:ChanceScheduler',
            ChanceScheduler,
        ),
    ],
)
def test_a_driver_is_loaded_by_entry_point_or_import_path(name, driver):
    """A driver is named by entry point or by import path."""
    built = loading.driver(Settings(driver=name))(
        SchedulerDeps(Settings(), [], NOBODY, NOBODY)
    )
    assert type(built) is driver


def test_a_constructor_error_of_a_driver_stops_the_start():
    """An error of the constructor of a driver stops the start in the same way."""
    why = r'^\[scheduler\] driver = filter_scheduler: AttributeError'
    with pytest.raises(ConfigError, match=why):
        loading.driver(Settings(driver='filter_scheduler'))(None)


def test_built_in_plugins_need_no_preparation():
    """Stubs and options of nova are installed only for plugins that are not built
    in."""
    for load in (loading.filters, loading.weighers, loading.driver):
        load(Settings(), lambda: pytest.fail('prepared'))


NOBODY = object()


FILE = f"""
    [filter_scheduler]
    available_filters = nova.scheduler.filters.all_filters
    available_filters = {STYLE}.RackFilter
    enabled_filters = RackFilter
    ram_weight_multiplier = 7.5
    [acme]
    rack = r7
"""


def test_a_plugin_reads_options_from_nova_conf(tmp_path):
    """A plugin reads its own options and nova's options from nova.conf."""
    path = tmp_path / 'nova.conf'
    path.write_text(dedent(FILE))
    conf = conf_loading.load(['--config-file', str(path)], 'novasched')
    prepare = functools.partial(share_options, conf)
    for _ in range(2):
        (plugin,) = loading.filters(conf_loading.settings(conf), prepare)
        assert plugin.name == 'RackFilter'
        assert cfg.CONF.acme.rack == 'r7'
        assert cfg.CONF.filter_scheduler.ram_weight_multiplier == 7.5
        assert cfg.CONF.filter_scheduler.disk_weight_multiplier == 1.0
