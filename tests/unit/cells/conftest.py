# SPDX-License-Identifier: Apache-2.0
import pytest

from tests.lab.nova_databases import NovaDatabases


@pytest.fixture
def cloud(tmp_path):
    """The databases as SQLite files."""
    return NovaDatabases(lambda name: f'sqlite:///{tmp_path}/{name}')
