# SPDX-License-Identifier: Apache-2.0
"""Pictures."""

import pytest

from novasched.tools.simulate import plot
from novasched.tools.simulate.runs import HostUse
from novasched.tools.simulate.sources import Unusable

USES = [HostUse(f'h{i}', 'n', i % 7, i * 10, 500) for i in range(40)]
MORE = [HostUse(each.host, 'n', each.servers + 1, each.ram_mb + 50, 500) for each in USES]
MAGIC = {'png': b'\x89PNG', 'svg': b'<?xml', 'pdf': b'%PDF'}


@pytest.mark.parametrize('kind', MAGIC)
def test_a_picture(tmp_path, kind):
    """It is of the kind that the file's name says, and the same each time."""
    pictures = []
    for name in ('one', 'two'):
        path = tmp_path / f'{name}.{kind}'
        plot.draw(str(path), '5 more', {'before': USES, 'after': MORE, 'changed': USES})
        pictures.append(path.read_bytes())
    assert pictures[0].startswith(MAGIC[kind])
    assert pictures[0] == pictures[1]


@pytest.mark.parametrize('name', ['picture', 'picture.gif', 'nowhere/picture.png'])
def test_no_picture(tmp_path, name):
    """Before anything is simulated it is said that it cannot be drawn."""
    with pytest.raises(Unusable, match='--plot'):
        plot.check(str(tmp_path / name))


def test_no_room(tmp_path):
    """Nor can it where a folder has that name."""
    (tmp_path / 'a.svg').mkdir()
    with pytest.raises(Unusable, match='directory'):
        plot.draw(str(tmp_path / 'a.svg'), '', {'before': USES})
