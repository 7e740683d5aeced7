# SPDX-License-Identifier: Apache-2.0
"""Plugins of other packages are asked by one request at a time, unless they say
otherwise."""

import contextlib
import copy
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from novasched.conf.settings import Settings
from novasched.plugins import loading
from novasched.plugins.nova_compat import import_stubs
from novasched.scheduler.errors import BadPlugin
from novasched.scheduler.filters import Filter
from novasched.scheduler.weighers import Weigher
from tests.lab.builders import a_host
from tests.lab.ports import Clock
from tests.unit.plugins.test_nova_weighers import pipeline, rank

MEETING = threading.Barrier(1)
"""Whoever is in a plugin waits there for the others, if not for long."""


def take_part():
    """Be in the plugin until a second request comes, or a while has passed."""
    with contextlib.suppress(threading.BrokenBarrierError):
        MEETING.wait()


class NovaStyle(import_stubs.BaseHostFilter):
    """A filter that was written for nova."""

    def filter_all(self, filter_obj_list, spec_obj):
        take_part()
        return list(filter_obj_list)


class NovaStyleWeigher(import_stubs.BaseHostWeigher):
    """A weigher that was written for nova."""

    def _weigh_object(self, host_state, weight_properties):
        take_part()
        return 1.0


class Ours(Filter):
    """A filter by this package's contract."""

    def reject(self, host, request):
        take_part()


class OursPerRequest(Ours):
    """The same, with an object of its own for each request."""

    def for_one_request(self, first):
        return copy.copy(self)


class OursWeigher(Weigher):
    """A weigher by this package's contract."""

    multiplier = 'ram_weight_multiplier'

    def weigh(self, host, request):
        take_part()
        return 1.0


HOSTS = [a_host(name) for name in ('one', 'two')]


@pytest.mark.parametrize('thread_safe', [False, True])
@pytest.mark.parametrize(
    'plugin', [NovaStyle, NovaStyleWeigher, Ours, OursPerRequest, OursWeigher]
)
def test_two_requests(plugin, thread_safe, monkeypatch):
    """Two requests meet in a plugin only if it is thread-safe by its own account."""
    met = threading.Event()
    barrier = threading.Barrier(2, met.set, timeout=5 if thread_safe else 0.1)
    monkeypatch.setitem(globals(), 'MEETING', barrier)
    monkeypatch.setattr(plugin, 'thread_safe', thread_safe, raising=False)
    name = plugin.__name__
    line = pipeline(
        __name__, *(([], [name]) if name.endswith('Weigher') else ([name], []))
    )
    with ThreadPoolExecutor(2) as pool:
        ranked = [pool.submit(rank, line, HOSTS) for _ in range(2)]
        assert [len(each.result(10)) for each in ranked] == [2, 2]
    assert met.is_set() == thread_safe


def test_built_in_plugins_are_not_guarded():
    """The filters and weighers of this package may be asked by all requests at once."""
    made = [*loading.filters(Settings()), *loading.weighers(Settings())]
    assert not [each for each in made if each.asking_lock]


def test_a_plugin_that_hangs():
    """Whoever needs a plugin that has not answered another request for long is refused,
    with the plugin's name; when it has answered after all, the next is served."""
    clock = Clock()
    guard = loading.OneAtATime('RackFilter', timeout=5.0, clock=clock)
    with guard:
        clock.now += 6.0
        with (
            ThreadPoolExecutor(1) as pool,
            pytest.raises(
                BadPlugin, match='RackFilter has not answered another request for 5 s'
            ),
        ):
            pool.submit(guard.__enter__).result(10)
    with guard:
        pass


def test_a_queue_is_no_hang():
    """Requests that wait for several others in turn are served, as long as each of
    these is quick."""
    clock = Clock()
    guard = loading.OneAtATime('RackFilter', timeout=5.0, clock=clock)
    served = []
    waiting = threading.Semaphore(0)

    def ask(number):
        waiting.release()
        with guard:
            clock.now += 4.0
            served.append(number)

    with ThreadPoolExecutor(4) as pool:
        with guard:
            asked = [pool.submit(ask, number) for number in range(4)]
            for _ in asked:
                waiting.acquire(timeout=10)
        for each in asked:
            each.result(10)
    assert sorted(served) == [0, 1, 2, 3]
