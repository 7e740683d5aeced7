# SPDX-License-Identifier: Apache-2.0
"""Hosts that refuse again and again are tried last, and otherwise nothing changes."""

from random import Random

import pytest

from novasched.conf.settings import Settings
from novasched.plugins import loading
from novasched.scheduler.model.request import Destination
from novasched.scheduler.pipeline import Pipeline
from novasched.scheduler.weighers.refusing_host import RefusingHostWeigher
from tests.lab.builders import a_host, a_request, a_uuid

HOSTS = [
    a_host('a', ram=4096),
    a_host('b', ram=3072),
    a_host('c', ram=2048, cell='cell2'),
    a_host('d', ram=1024, failed_builds=5),
]
MOVES = Destination(cell_uuid=a_uuid('cell1'), allow_cross_cell_move=True)


@pytest.mark.parametrize(
    ('refusing', 'order'),
    [
        ('', 'abcd'),
        ('a', 'bcda'),
        ('ab', 'cdab'),
        ('d', 'abcd'),
        ('bd', 'acbd'),
        ('abcd', 'abcd'),
        ('x', 'abcd'),
    ],
)
def test_order(refusing, order):
    """They stand behind all others, also those with failed builds and in other cells;
    among themselves, and where all of them refuse, in the order that they would have
    else."""
    settings = Settings()
    keys = {(name, name) for name in refusing}
    own = RefusingHostWeigher(settings, lambda: keys)
    pipeline = Pipeline(settings, (), [*loading.weighers(settings), own])
    request = a_request(requested_destination=MOVES)
    ranking = pipeline.rank(HOSTS, request, 0, Random(0))
    assert ''.join(host.host for host in ranking.hosts) == order
    shares = [
        (best.host, share.raw, share.multiplier)
        for best in ranking.best
        for share in best.shares
        if share.weigher == RefusingHostWeigher.__name__
    ]
    assert shares == [
        (name, float(name in refusing), own.default_scale) for name in order if refusing
    ]


def test_nodes():
    """Of several nodes of one nova-compute the one that refuses is told apart."""
    hosts = [a_host('ironic', nodename=name) for name in 'mn']
    own = RefusingHostWeigher(Settings(), lambda: {('ironic', 'n')})
    assert own.weigh_all(hosts, a_request()) == [0.0, 1.0]
