# SPDX-License-Identifier: Apache-2.0
"""Packages of others: code, and metadata that says what it is good for."""

from textwrap import dedent

import pytest

from novasched.conf.errors import ConfigError
from novasched.conf.settings import ALL_WEIGHERS, Settings
from novasched.plugins import loading
from novasched.scheduler.drivers import Parts
from tests.lab.builders import a_host
from tests.unit.plugins.ranking import pipeline, rank

CODE = """
    from novasched.scheduler.drivers.filter_scheduler import FilterScheduler
    from novasched.scheduler.filters import Filter
    from novasched.scheduler.weighers import Weigher

    class EvenFilter(Filter):
        def reject(self, host, request):
            return 'odd' if host.num_instances % 2 else None

    class FewestWeigher(Weigher):
        multiplier = 'num_instances_weight_multiplier'

        @property
        def default_scale(self):
            return 1.0

        def weigh(self, host, request):
            return -host.num_instances

    class Driver(FilterScheduler):
        pass
"""
NOVA_CODE = """
    from nova.scheduler import filters

    class OldFilter(filters.BaseHostFilter):
        def host_passes(self, host_state, spec_obj):
            return host_state.num_instances < 2
"""
ENTRY_POINTS = """
    [novasched.filters]
    EvenFilter = acme_plugins.mine:EvenFilter
    OldFilter = acme_plugins.old:OldFilter
    ComputeFilter = acme_plugins.mine:EvenFilter
    BrokenFilter = acme_plugins.broken:BrokenFilter
    NoFilter = acme_plugins.mine:FewestWeigher

    [novasched.weighers]
    FewestWeigher = acme_plugins.mine:FewestWeigher

    [novasched.drivers]
    acme = acme_plugins.mine:Driver
"""
HOSTS = [a_host(f'h{count}', num_instances=count) for count in (3, 0, 1, 2)]


@pytest.fixture(autouse=True)
def acme(tmp_path, monkeypatch):
    """A package of that name, installed in a directory of the path."""
    code = tmp_path / 'acme_plugins'
    code.mkdir()
    (code / '__init__.py').touch()
    (code / 'mine.py').write_text(dedent(CODE))
    (code / 'old.py').write_text(dedent(NOVA_CODE))
    (code / 'broken.py').write_text('import acme_inventory')
    metadata = tmp_path / 'acme_plugins-1.0.dist-info'
    metadata.mkdir()
    (metadata / 'METADATA').write_text(
        'Metadata-Version: 2.1\nName: acme-scheduling\nVersion: 1.0\n'
    )
    (metadata / 'entry_points.txt').write_text(dedent(ENTRY_POINTS))
    monkeypatch.syspath_prepend(tmp_path)


@pytest.mark.parametrize(
    ('filters', 'weighers', 'ranked'),
    [
        (['OldFilter', 'EvenFilter'], [], ['h0']),
        ([], ['acme_plugins.mine.FewestWeigher'], ['h0', 'h1', 'h2', 'h3']),
        ([], [ALL_WEIGHERS], ['h3', 'h0', 'h1', 'h2']),
    ],
)
def test_entry_points(filters, weighers, ranked):
    """A filter, one that was written for nova, and a weigher, each by its name. An installed
    package enables nothing of itself."""
    assert rank(pipeline(filters=filters, weighers=weighers), HOSTS) == ranked


def test_built_in_names_cannot_be_taken(caplog):
    """A package that offers a built-in name is passed over, and the log says so."""
    (found,) = loading.filters(Settings(enabled_filters=('ComputeFilter',)))
    assert type(found).__module__ == 'novasched.scheduler.filters.compute'
    assert 'acme_plugins.mine:EvenFilter is passed over' in caplog.text


def test_a_driver():
    """``[scheduler] driver`` names it."""
    built = loading.driver(Settings(driver='acme'))(Parts(Settings(), [], None, None))
    assert type(built).__module__ == 'acme_plugins.mine'


@pytest.mark.parametrize(
    ('name', 'why'),
    [
        ('BrokenFilter', "ModuleNotFoundError: No module named 'acme_inventory'"),
        ('NoFilter', 'FewestWeigher is no filter'),
    ],
)
def test_a_broken_package(name, why):
    """What does not load stops the start only where an option names it."""
    with pytest.raises(ConfigError, match=f'enabled_filters = {name}: {why}'):
        loading.filters(Settings(enabled_filters=(name,)))
