# SPDX-License-Identifier: Apache-2.0
"""What there is of nova where nova is not installed. Where it is, the functions are
nova's own, and the same tables hold for them."""

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
def test_nothing_before_it_is_wanted():
    """Without the stand-ins there is no nova; installing them twice is as good as
    once."""
    import_stubs.install()
    (finder,) = [
        each for each in sys.meta_path if isinstance(each, import_stubs.StubFinder)
    ]
    assert sys.meta_path[-1] is finder
    sys.meta_path.remove(finder)
    with pytest.raises(ModuleNotFoundError):
        module('nova')
    sys.meta_path.append(finder)
    assert module('nova')
    assert not import_stubs.nova_is_installed()


@without_nova
@pytest.mark.parametrize('name', import_stubs.MODULES)
def test_every_module_can_be_imported(name):
    """By its own name, with all that the table has for it."""
    found = module(name)
    assert found.__name__ == name
    assert vars(found).keys() >= import_stubs.MODULES[name].keys()


@without_nova
def test_what_is_not_there():
    """A module or a name that only nova has is missed with a hint."""
    with pytest.raises(ModuleNotFoundError):
        module('nova.virt')
    with pytest.raises(
        AttributeError, match='ServiceList does not exist unless nova is'
    ):
        _ = module('nova.objects').ServiceList


@without_nova
def test_a_real_nova_goes_first(tmp_path, monkeypatch):
    """Where there is a nova, in whole or in part, the stand-ins keep out of its way."""
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
def test_functions(name, function, arguments, result):
    """Each does what nova's does."""
    found = getattr(module(name), function)(*arguments)
    assert ([*found] if isinstance(result, list) else found) == result


def test_classes():
    """Exceptions have texts with fields, and ``nova.servicegroup`` knows the service of
    a host that a plugin sees."""
    base = module('nova.exception').NovaException
    odd = type('Odd', (base,), {'msg_fmt': 'odd %(what)s'})
    assert [str(odd(what='one')), str(odd('plain'))] == ['odd one', 'plain']
    api = module('nova.servicegroup').API()
    assert api.service_is_up(state().service)
    assert not api.service_is_up(state(up=False).service)
