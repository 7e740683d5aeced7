# SPDX-License-Identifier: Apache-2.0
"""Hosts that refuse again and again, against what anybody would write down."""

from hypothesis import given
from hypothesis import strategies as st

from novasched.conf.settings import Settings
from novasched.observe.refusals import HostRefusals
from novasched.scheduler.decision import Decision
from novasched.scheduler.model.request import Retry
from tests.lab.builders import a_request
from tests.lab.ports import Clock

PERIOD = 5
HOSTS = 'ab'
INSTANCES = 'ijklmnop'

REFUSALS = st.lists(
    st.tuples(
        st.integers(0, 4),
        st.sampled_from(INSTANCES),
        st.lists(st.sampled_from(HOSTS), unique=True),
        st.booleans(),
    ),
    max_size=30,
)
"""Seconds since the one before, an instance, the hosts that refused it, and whether
builds did."""


def decision(instance, hosts, builds):
    """What is decided on a request for an instance that was refused there."""
    keys = tuple((host, host) for host in hosts)
    if builds:
        request = a_request(instance_uuids=(instance,), retry=Retry(1, keys))
        return Decision(request, 1, 0.0, 0.0)
    return Decision(
        a_request(), 1, 0.0, 0.0, host_refusals=tuple((k, instance) for k in keys)
    )


class Twin:
    """Writes down every refusal, and reads all of it again for each answer."""

    def __init__(self, limit):
        self.limit = limit
        self.written = {}

    def write(self, now, instance, hosts):
        for host in hosts:
            self.written.setdefault((host, instance), now)

    def moments(self, host, now):
        """When the host refused within the period before a moment."""
        return [
            x
            for (y, _), x in self.written.items()
            if y == host and now - PERIOD < x <= now
        ]

    def refusing(self, now):
        return {
            (host, host)
            for host in HOSTS
            if any(
                len(self.moments(host, x)) >= self.limit
                for x in self.moments(host, now)
            )
        }


@given(st.integers(1, 4), REFUSALS)
def test_against_what_is_written_down(limit, refused):
    """After each refusal, and in the seconds after the last, the same hosts refuse."""
    clock = Clock()
    twin = Twin(limit)
    settings = Settings(refusing_host_limit=limit, refusing_host_period=float(PERIOD))
    counted = HostRefusals(settings, clock)
    for seconds, instance, hosts, builds in refused:
        clock.now += seconds
        counted(decision(instance, hosts, builds))
        twin.write(clock.now, instance, hosts)
        assert set(counted.refusing()) == twin.refusing(clock.now)
    assert sum(counted.counts.values()) == len(twin.written)
    for _ in range(PERIOD):
        clock.now += 1
        assert set(counted.refusing()) == twin.refusing(clock.now)
    assert not counted.refusing()
