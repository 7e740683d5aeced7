# SPDX-License-Identifier: Apache-2.0
import pytest

from novasched.cells.engines import filled

OWN = 'mysql+pymysql://nova:s3cret@db.example:3307/nova?charset=utf8'


@pytest.mark.parametrize(
    ('template', 'own', 'url'),
    [
        ('mysql://u:p@h/db', OWN, 'mysql://u:p@h/db'),
        ('{scheme}://{username}:{password}@{hostname}:{port}/cell1?{query}', OWN,
         'mysql+pymysql://nova:s3cret@db.example:3307/cell1?charset=utf8'),
        ('{scheme}://{hostname}/{path}_cell1', OWN, 'mysql+pymysql://db.example/nova_cell1'),
        ('{scheme}://{username}@{hostname}:{port}/x', 'mysql://h/db', 'mysql://@h:/x'),
        ('{scheme}://{unknown}', OWN, 'mysql+pymysql://'),
        ('{scheme.__class__}://x', OWN, '{scheme.__class__}://x'),
        ('{scheme}://x', None, '{scheme}://x'),
    ],
)  # fmt: skip
def test_templates_are_filled_from_our_own_connection(template, own, url):
    """Only whole names in braces are replaced; nothing else of the text is looked at."""
    assert filled(template, own) == url
