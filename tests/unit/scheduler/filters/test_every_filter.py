# SPDX-License-Identifier: Apache-2.0
"""Properties of all built-in filters."""

import re
import string
from dataclasses import replace
from importlib.metadata import entry_points

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from novasched.conf.settings import Settings
from novasched.plugins import loading
from novasched.scheduler.filters import Data, Scope, shared
from novasched.scheduler.model.host import Instance
from tests.lab.builders import NOT_ASKED, a_flavor, a_group, a_host, a_request
from tests.lab.filter_cases import all_cases, keys_of_metadata, refusals

NAMES = sorted(entry_points(group='novasched.filters').names)


@pytest.mark.parametrize('name', NAMES)
def test_every_filter_declares_name_scope_reads_and_phrase(name):
    """Every filter has the name of its entry point, and declares when to run and how to
    summarise a rejection."""
    (plugin,) = loading.filters(Settings(enabled_filters=(name,)))
    assert plugin.name == name
    assert isinstance(plugin.scope, Scope)
    assert isinstance(plugin.on_rebuild, bool)
    assert {*plugin.reads} <= {*Data}
    assert re.fullmatch('[a-z].+[^.]', plugin.phrase) or not plugin.applies(a_request())


@pytest.mark.parametrize(
    ('name', 'settings', 'host', 'request_', 'verdict'), all_cases()
)
def test_a_filter_accepts_a_host_or_gives_the_expected_reason(
    name, settings, host, request_, verdict
):
    """A filter that applies accepts the host, or gives the reason in one line."""
    (plugin,) = loading.filters(Settings(enabled_filters=(name,), **settings))
    request = a_request(**request_)
    assert plugin.applies(request) is (verdict is not NOT_ASKED)
    if verdict is not NOT_ASKED:
        assert plugin.reject(a_host(**host), request) == verdict


@pytest.mark.parametrize('name', NAMES)
def test_every_filter_has_cases_in_the_tables(name):
    """Every filter is in a table of cases. A filter that may reject hosts rejects a
    host there."""
    cases = [case for case in all_cases() if case.values[0] == name]
    assert cases
    if name != 'AllHostsFilter':
        assert name in {case.values[0] for case in refusals()}


ALL = None
GROUP = {
    'group': a_group('anti-affinity', ['a', 'b']),
    'instance_uuids': ('new', 'newer'),
}


@pytest.mark.parametrize(
    ('name', 'fields', 'needed'),
    [
        ('ComputeFilter', {}, set()),
        ('TypeAffinityFilter', {}, set()),
        ('SameHostFilter', {'hints': {'same_host': ['a', 'b']}}, {'a', 'b'}),
        ('DifferentHostFilter', {'hints': {'different_host': ['a']}}, {'a'}),
        (
            'ServerGroupAffinityFilter',
            {'group': a_group('affinity', ['a'], hosts=['h'])},
            set(),
        ),
        ('ServerGroupAntiAffinityFilter', GROUP, {'a', 'b', 'new', 'newer'}),
        (
            'ServerGroupAntiAffinityFilter',
            {**GROUP, 'instance_uuids': None},
            {'a', 'b'},
        ),
        (
            'ServerGroupAntiAffinityFilter',
            {**GROUP, 'instance_uuid': 'old'},
            {'a', 'b', 'new', 'newer', 'old'},
        ),
        ('JsonFilter', {'hints': {'query': ['[">=", "$free_ram_mb", 1024]']}}, set()),
        (
            'JsonFilter',
            {'hints': {'query': ['["not", ["=", "$instances.a.uuid", "a"]]']}},
            ALL,
        ),
        ('JsonFilter', {'hints': {'query': ['["=", "$instances", 1]']}}, ALL),
        ('JsonFilter', {'hints': {'query': ['["=", "\\u0024instances.a", 1]']}}, ALL),
        ('JsonFilter', {'hints': {'query': ['no query']}}, set()),
        ('JsonFilter', {'hints': {'query': ['[]', '[]']}}, set()),
        ('JsonFilter', {'hints': {'query': ['[' * 5000 + ']' * 5000]}}, set()),
    ],
)
def test_a_filter_names_the_instances_to_read(name, fields, needed):
    """A filter names the instances that it looks for, so that no further instances are
    read."""
    (plugin,) = loading.filters(Settings(enabled_filters=(name,)))
    request = a_request(**{'instance_uuids': None, 'instance_uuid': None, **fields})
    uuids = plugin.needed_instances(request)
    if needed is ALL:
        assert uuids is None
    else:
        assert set(uuids) == needed


KEYS = st.sampled_from(['aggregate_instance_extra_specs:x', 'x', *keys_of_metadata()])
TEXTS = st.text(string.printable, max_size=6) | st.sampled_from(
    [
        '>= 1',
        '= x',
        '<or>',
        '<or> x <or> 1',
        '<in>',
        '<all-in> x',
        's== x',
        '==',
        'nan',
        'inf',
        '-1',
        'x,1',
    ]
)
NUMBERS = st.integers(-5, 5)
SETTINGS = Settings(
    enabled_filters=tuple(NAMES),
    metrics_weight_setting=('x=1',),
    isolated_hosts=('host1',),
    isolated_images=('x',),
)


@settings(deadline=None)
@given(
    metadata=st.lists(st.dictionaries(KEYS, TEXTS, max_size=5), max_size=3),
    extra_specs=st.dictionaries(KEYS, TEXTS, max_size=3),
    image=st.none()
    | st.dictionaries(KEYS, TEXTS | NUMBERS | st.booleans(), max_size=3),
    hints=st.dictionaries(
        st.sampled_from(
            ['same_host', 'different_host', 'query', 'build_near_host_ip', 'cidr']
        ),
        st.lists(TEXTS, max_size=2),
    ),
    numbers=st.fixed_dictionaries(
        dict.fromkeys(('ram', 'disk_gb', 'vcpus', 'vcpus_used'), NUMBERS)
    ),
    host_ip=st.none() | TEXTS,
    metrics=st.lists(
        st.none() | st.dictionaries(st.just('name'), TEXTS | st.lists(TEXTS))
    ),
)
def test_filters_raise_no_error_for_any_host_and_request(
    metadata, extra_specs, image, hints, numbers, host_ip, metrics
):
    """A filter accepts or gives a reason for any content of host and request. It never
    raises an error, and repeats its verdict within its scope."""
    host = a_host(metadata=metadata, host_ip=host_ip, metrics=tuple(metrics), **numbers)
    host = replace(host, instances={'x': Instance('x')})
    request = a_request(flavor=a_flavor(extra_specs, vcpus=2), image=image, hints=hints)

    for plugin in loading.filters(SETTINGS):
        if plugin.applies(request):
            hash(plugin.request_key(request))
            (why,), _ = shared.judge(plugin, [host], request, None)
            assert why is None or isinstance(why, str)
