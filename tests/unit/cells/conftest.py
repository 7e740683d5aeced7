# SPDX-License-Identifier: Apache-2.0
import pytest

from tests.lab.nova_databases import NovaDatabases


@pytest.fixture
def cloud(tmp_path):
    """The databases as SQLite files."""
    return NovaDatabases(lambda name: f'sqlite:///{tmp_path}/{name}')


@pytest.fixture
def two_cells(cloud):
    """A host in each cell."""
    cloud.add_host('h1', 'cell1')
    cloud.add_host('h2', 'cell2')
    return cloud
