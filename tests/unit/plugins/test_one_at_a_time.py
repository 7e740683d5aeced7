# SPDX-License-Identifier: Apache-2.0
"""One request at a time calls a plugin of another package that is not thread-safe."""

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
from tests.lab.builders import named_hosts
from tests.lab.memory_schedulers import ManualClock
from tests.unit.plugins.test_nova_weighers import pipeline, rank

BARRIER = threading.Barrier(1)
"""Calls of a plugin wait here for a second call. Tests replace the barrier."""


def meet():
    """Wait in the plugin for a second request, or for the timeout."""
    with contextlib.suppress(threading.BrokenBarrierError):
        BARRIER.wait()


class NovaStyle(import_stubs.BaseHostFilter):
    """A filter written for nova."""

    def filter_all(self, filter_obj_list, spec_obj):
        meet()
        return list(filter_obj_list)


class NovaStyleWeigher(import_stubs.BaseHostWeigher):
    """A weigher written for nova."""

    def _weigh_object(self, host_state, weight_properties):
        meet()
        return 1.0


class OwnFilter(Filter):
    """A filter written for novasched."""

    def reject(self, host, request):
        meet()


class OwnFilterPerRequest(OwnFilter):
    """A filter written for novasched with an object for each request."""

    def for_one_request(self, first):
        return copy.copy(self)


class OwnWeigher(Weigher):
    """A weigher written for novasched."""

    multiplier = 'ram_weight_multiplier'

    def weigh(self, host, request):
        meet()
        return 1.0


HOSTS = named_hosts(('one', 'two'))


@pytest.mark.parametrize('thread_safe', [False, True])
@pytest.mark.parametrize(
    'plugin', [NovaStyle, NovaStyleWeigher, OwnFilter, OwnFilterPerRequest, OwnWeigher]
)
def test_two_requests_meet_only_in_a_thread_safe_plugin(
    plugin, thread_safe, monkeypatch
):
    """Two requests meet in a plugin only if the plugin is thread-safe."""
    met = threading.Event()
    barrier = threading.Barrier(2, met.set, timeout=5 if thread_safe else 0.1)
    monkeypatch.setitem(globals(), 'BARRIER', barrier)
    monkeypatch.setattr(plugin, 'thread_safe', thread_safe, raising=False)
    name = plugin.__name__
    if name.endswith('Weigher'):
        plugins = pipeline(__name__, weighers=[name])
    else:
        plugins = pipeline(__name__, filters=[name])

    with ThreadPoolExecutor(2) as pool:
        rankings = [pool.submit(rank, plugins, HOSTS) for _ in range(2)]
        for ranking in rankings:
            assert len(ranking.result(10)) == 2
    assert met.is_set() == thread_safe


def test_built_in_plugins_are_not_guarded():
    """Several requests may call built-in plugins at the same time."""
    for plugin in [*loading.filters(Settings()), *loading.weighers(Settings())]:
        assert plugin.call_lock is None


def test_requests_are_refused_while_a_plugin_hangs():
    """While a call exceeds the timeout, requests that need the plugin are refused with
    its name. After the call, the next request is served."""
    clock = ManualClock()
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


def test_requests_that_wait_for_quick_calls_are_served():
    """Requests that wait for several quick calls in turn are served, even if the calls
    together exceed the timeout."""
    clock = ManualClock()
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
            calls = [pool.submit(ask, number) for number in range(4)]
            for _ in calls:
                waiting.acquire(timeout=10)
        for call in calls:
            call.result(10)
    assert sorted(served) == [0, 1, 2, 3]
