# SPDX-License-Identifier: Apache-2.0
"""The stubs of nova's modules. With nova installed, the tables test nova's own
functions."""

import sys
from importlib import import_module as module

import pytest

from novasched.plugins.nova_compat import import_stubs
from novasched.plugins.nova_compat.adapters import RequestViews
from tests.lab.builders import a_host, a_uuid

without_nova = pytest.mark.skipif(
    import_stubs.nova_is_installed(), reason='nova is installed'
)


@pytest.fixture(autouse=True)
def installed():
    import_stubs.install()


@without_nova
def test_stubs_are_importable_only_with_the_finder():
    """Without the finder there is no module nova. Installing the finder twice has no
    effect."""
    import_stubs.install()
    assert list(map(type, sys.meta_path)).count(import_stubs.StubFinder) == 1
    finder = sys.meta_path[-1]
    assert isinstance(finder, import_stubs.StubFinder)

    sys.meta_path.remove(finder)
    with pytest.raises(ModuleNotFoundError):
        module('nova')
    sys.meta_path.append(finder)
    assert module('nova')
    assert not import_stubs.nova_is_installed()


@without_nova
@pytest.mark.parametrize('name', import_stubs.MODULES)
def test_every_module_can_be_imported(name):
    stub = module(name)
    assert stub.__name__ == name
    assert vars(stub).keys() >= import_stubs.MODULES[name].keys()


@without_nova
def test_names_that_only_nova_has_raise_an_error_with_a_hint():
    """A module or a name that only nova has leads to an error with a hint."""
    with pytest.raises(ModuleNotFoundError):
        module('nova.virt')
    with pytest.raises(
        AttributeError, match='ServiceList does not exist unless nova is'
    ):
        _ = module('nova.objects').ServiceList


@without_nova
def test_installed_nova_takes_precedence(tmp_path, monkeypatch):
    """An installed nova takes precedence over all stubs."""
    (tmp_path / 'nova').mkdir()
    (tmp_path / 'nova' / '__init__.py').write_text('real = True')
    monkeypatch.syspath_prepend(tmp_path)
    assert import_stubs.nova_is_installed()
    try:
        assert module('nova').real
        with pytest.raises(ModuleNotFoundError):
            module('nova.scheduler')
    finally:
        del sys.modules['nova']


def state(*metadata, **fields):
    host = a_host('h', metadata=metadata, **fields)
    return RequestViews().host(host)


UTILS = 'nova.scheduler.filters.utils'
OPERATORS = 'nova.scheduler.filters.extra_specs_ops'


@pytest.mark.parametrize(
    ('name', 'function', 'arguments', 'result'),
    [
        (
            UTILS,
            'aggregate_values_from_key',
            [state({'k': 'a'}, {'k': 'b,c'}, {}), 'k'],
            {'a', 'b,c'},
        ),
        (
            UTILS,
            'aggregate_metadata_get_by_host',
            [state({'k': 'a, b', 'x': '1'}, {'k': 'c'})],
            {'k': {'a', 'b', 'c'}, 'x': {'1'}},
        ),
        (
            UTILS,
            'aggregate_metadata_get_by_host',
            [state({'k': 'a', 'x': '1'}, {'y': 'c'}), 'k'],
            {'k': {'a'}, 'x': {'1'}},
        ),
        (UTILS, 'validate_num_values', [{'3', '20'}], 3),
        (UTILS, 'validate_num_values', [{'3', '20'}, None, float, max], 20.0),
        (UTILS, 'validate_num_values', [set(), 7], 7),
        (
            UTILS,
            'instance_uuids_overlap',
            [state(instances=[a_uuid('s')]), a_uuid('s')],
            True,
        ),
        (
            UTILS,
            'instance_uuids_overlap',
            [state(instances=[a_uuid('s')]), [a_uuid('t')]],
            False,
        ),
        (OPERATORS, 'match', ['4', '>= 2'], True),
        (OPERATORS, 'match', ['4', '<or> 3 <or> 5'], False),
        (OPERATORS, 'match', [None, 's== x'], False),
        ('nova.weights', 'normalize', [[]], []),
        ('nova.weights', 'normalize', [[1, 3]], [0, 1]),
        ('nova.weights', 'normalize', [[2, 2]], [0, 0]),
        ('nova.weights', 'normalize', [[1, 3], -1], [0.5, 1]),
        ('nova.i18n', '_', ['broken'], 'broken'),
    ],
)
def test_helpers_return_the_results_of_nova(name, function, arguments, result):
    """The helpers return the results of nova's helpers."""
    returned = getattr(module(name), function)(*arguments)
    # nova's own normalize() may return another sequence than a list.
    if isinstance(result, list):
        returned = list(returned)
    assert returned == result


def test_stub_exceptions_have_messages_and_services_have_states():
    """NovaException formats its message, and ``nova.servicegroup`` knows the service of
    a host state."""
    base = module('nova.exception').NovaException
    odd = type('Odd', (base,), {'msg_fmt': 'odd %(what)s'})
    assert [str(odd(what='one')), str(odd('plain'))] == ['odd one', 'plain']
    api = module('nova.servicegroup').API()
    assert api.service_is_up(state().service)
    assert not api.service_is_up(state(up=False).service)
