# SPDX-License-Identifier: Apache-2.0
"""Packages of others: code, and metadata that says what it is good for."""

from random import Random
from textwrap import dedent

import pytest

from novasched import plugins
from novasched.drivers import Parts
from novasched.errors import ConfigError
from novasched.model.settings import ALL_WEIGHERS, Settings
from novasched.pipeline import Pipeline
from tests.builders import a_host, a_request

CODE = """
    from novasched.drivers.filter_scheduler import FilterScheduler
    from novasched.filters import Filter
    from novasched.weighers import Weigher

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
    EvenFilter = acme_scheduling.mine:EvenFilter
    OldFilter = acme_scheduling.old:OldFilter
    ComputeFilter = acme_scheduling.mine:EvenFilter
    BrokenFilter = acme_scheduling.broken:BrokenFilter
    NoFilter = acme_scheduling.mine:FewestWeigher

    [novasched.weighers]
    FewestWeigher = acme_scheduling.mine:FewestWeigher

    [novasched.drivers]
    acme = acme_scheduling.mine:Driver
"""
HOSTS = [a_host(f'h{count}', num_instances=count) for count in (3, 0, 1, 2)]


@pytest.fixture(autouse=True)
def acme(tmp_path, monkeypatch):
    """A package of that name, installed in a directory of the path."""
    code = tmp_path / 'acme_scheduling'
    code.mkdir()
    (code / '__init__.py').touch()
    (code / 'mine.py').write_text(dedent(CODE))
    (code / 'old.py').write_text(dedent(NOVA_CODE))
    (code / 'broken.py').write_text('import acme_inventory')
    metadata = tmp_path / 'acme_scheduling-1.0.dist-info'
    metadata.mkdir()
    (metadata / 'METADATA').write_text(
        'Metadata-Version: 2.1\nName: acme-scheduling\nVersion: 1.0\n'
    )
    (metadata / 'entry_points.txt').write_text(dedent(ENTRY_POINTS))
    monkeypatch.syspath_prepend(tmp_path)


def rank(filters=(), weighers=()):
    settings = Settings(enabled_filters=tuple(filters), weight_classes=tuple(weighers))
    line = Pipeline(settings, plugins.filters(settings), plugins.weighers(settings))
    request = a_request()
    ranked = line.for_request({}).rank(HOSTS, request, 0, Random(1))
    return [host.host for host in ranked]


@pytest.mark.parametrize(
    ('filters', 'weighers', 'ranked'),
    [
        (['EvenFilter'], [], ['h0', 'h2']),
        (['OldFilter'], [], ['h0', 'h1']),
        (['OldFilter', 'EvenFilter'], [], ['h0']),
        ([], ['FewestWeigher'], ['h0', 'h1', 'h2', 'h3']),
        ([], ['acme_scheduling.mine.FewestWeigher'], ['h0', 'h1', 'h2', 'h3']),
        ([], [], ['h3', 'h0', 'h1', 'h2']),
    ],
)
def test_entry_points(filters, weighers, ranked):
    """A filter, a weigher, and a filter that was written for nova, each by its name."""
    assert rank(filters, weighers) == ranked


def test_installing_a_package_enables_nothing():
    """A weigher of another package weighs when it is named, not because it is there."""
    found = plugins.weighers(Settings(weight_classes=(ALL_WEIGHERS,)))
    assert 'FewestWeigher' not in [each.name for each in found]


def test_built_in_names_cannot_be_taken(caplog):
    """A package that offers a built-in name is passed over, and the log says so."""
    (found,) = plugins.filters(Settings(enabled_filters=('ComputeFilter',)))
    assert type(found).__module__ == 'novasched.filters.compute'
    assert 'acme_scheduling.mine:EvenFilter is passed over' in caplog.text


def test_a_driver():
    """``[scheduler] driver`` names it."""
    built = plugins.driver(Settings(driver='acme'))(Parts(Settings(), [], None, None))
    assert type(built).__module__ == 'acme_scheduling.mine'


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
        plugins.filters(Settings(enabled_filters=(name,)))
