# SPDX-License-Identifier: Apache-2.0
import pytest

from novasched import secrets
from novasched.records.reasons import LONGEST, OTHERS, all_told, grouped, told
from tests.builders import a_uuid

ONE, TWO = a_uuid('one'), a_uuid('two')


@pytest.mark.parametrize(
    ('reasons', 'causes'),
    [
        ({}, []),
        ({'disabled': 3, 'down': 5}, [('down', 5), ('disabled', 3)]),
        ({'2 vCPUs free, 4 wanted': 1, '0 vCPUs free, 4 wanted': 2}, [('0 to 2 vCPUs free, 4 wanted', 3)]),
        ({'-512 MiB free': 1, '1.5 MiB free': 1, '10 MiB free': 1}, [('-512 to 10 MiB free', 3)]),
        ({"'ram' is '4', '>= 9' wanted": 1, "'ram' is '5', '>= 9' wanted": 1}, [("'ram' is '4 to 5', '>= 9' wanted", 2)]),
        ({f'has {ONE}': 1, f'has {TWO}': 1}, [('has this or that', 2)]),
        ({f'group {ONE} is on 5 hosts': 1, f'group {ONE} is on 6 hosts': 1}, [(f'group {ONE} is on 5 to 6 hosts', 2)]),
        ({'10.0.0.1 is not in 10.0.1.0/24': 1, '10.0.0.2 is not in 10.0.1.0/24': 1}, [('this or that is not in 10.0.1.0/24', 2)]),
        ({'host-1 lacks x86_64': 1, 'host-2 lacks x86_64': 1}, [('host-1 lacks x86_64', 1), ('host-2 lacks x86_64', 1)]),
        ({'1e+06 MiB free': 1, '5 MiB free': 1}, [('5 to 1e+06 MiB free', 2)]),
        ({letter: 9 - n for n, letter in enumerate('abcdefg')}, [('a', 9), ('b', 8), ('c', 7), ('d', 6), (OTHERS, 12)]),
    ],
)  # fmt: skip
def test_grouped(reasons, causes):
    """Reasons that differ in numbers alone are one; what is part of a name is no number."""
    assert [(each.reason, each.hosts) for each in grouped(reasons)] == causes


def test_what_is_told(monkeypatch):
    """One line, not too long, and nothing that is secret."""
    monkeypatch.setattr(secrets.KNOWN, 'secrets', secrets.Secrets.of(['Kraken77']))
    assert told('a\n  b Kraken77') == 'a b ***'
    assert len(told('x' * 999)) == LONGEST
    assert all_told(['a\nKraken77', 'b', 'b']) == {'a\nKraken77': 'a ***', 'b': 'b'}
