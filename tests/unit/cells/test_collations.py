# SPDX-License-Identifier: Apache-2.0
"""Keys of texts from made-up weights. The functional tests compare with the weights of
MariaDB."""

import pytest

from novasched.cells.collations import PRINTABLE_ASCII, TextWeights

UPPER = {ord(character): character.upper() for character in PRINTABLE_ASCII}
STORED = {'Zürich': 'ZURICH', 'a\u00a0': 'A '}


class Server:
    """A server that ignores the case of all letters.

    :ivar asked: the texts whose weights were asked for.
    """

    def __init__(self):
        self.asked = []

    def weights(self, text):
        self.asked.append(text)
        if text > '\uffff':
            return None
        return text.upper()


@pytest.mark.parametrize(
    ('text', 'key', 'padded_key'),
    [
        ('zone-A', 'ZONE-A', 'ZONE-A'),
        ('zone ', 'ZONE ', 'ZONE'),
        (' zone', ' ZONE', ' ZONE'),
        ('  ', '  ', ''),
        ('', '', ''),
        ('Zürich', 'ZURICH', 'ZURICH'),
        ('a\u00a0', 'A ', 'A'),
        ('éa', 'ÉA', 'ÉA'),
        ('tab\t', 'TAB\t', 'TAB\t'),
        ('\U0001f600', '\U0001f600', '\U0001f600'),
    ],
)
def test_a_key_is_made_of_weights(text, key, padded_key):
    """Trailing blanks count only in a collation without padding."""
    server = Server()
    for blank, expected in (('', key), (' ', padded_key)):
        for characters in (UPPER, None):
            weights = TextWeights(characters, blank, server.weights)
            assert weights.collation(STORED).key(text) == expected


@pytest.mark.parametrize(
    ('text', 'is_asked'),
    [('p1', False), ('Zürich', False), ('zürich', True), ('tab\t', True)],
)
def test_the_database_is_asked_only_for_weights_of_rare_texts(text, is_asked):
    """Requests with printable ASCII or stored texts ask the database nothing."""
    server = Server()
    TextWeights(UPPER, ' ', server.weights).collation(STORED).key(text)
    assert bool(server.asked) == is_asked


def test_the_trait_prefix_is_found_in_any_case_on_sqlite(cloud):
    """On SQLite, LIKE ignores the case of ASCII letters."""
    cloud.add_aggregate(1, ['h1'], **{'TRAIT:CUSTOM_X': 'required'})
    cloud.add_aggregate(2, ['h1'], **{'TRAIT:CUSTOM_X': 'Required'})
    found = cloud.reader().aggregates.all().isolated_from(['CUSTOM_X'])
    assert [aggregate.id for aggregate in found] == [1]
