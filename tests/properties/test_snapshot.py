# SPDX-License-Identifier: Apache-2.0
"""Incremental reading against reading everything; for MariaDB see the functional tests."""

import pytest
from hypothesis import given, settings

from tests.lab.nova_databases import NovaDatabases
from tests.lab.snapshot_story import STORY, Story


@pytest.fixture(scope='module')
def databases(tmp_path_factory):
    """SQLite files."""
    folder = tmp_path_factory.mktemp('databases')
    return NovaDatabases(lambda name: f'sqlite:///{folder}/{name}')


@given(steps=STORY)
@settings(max_examples=100)
def test_every_change_is_seen_by_the_next_request(databases, steps):
    """Equal seconds, clocks that differ, deletions, moves, restored backups: what a request
    sees is what a full read sees that is made for it."""
    story = Story(databases)
    story.tell(steps)
    story.close()
