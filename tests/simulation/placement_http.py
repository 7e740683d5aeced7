# SPDX-License-Identifier: Apache-2.0
"""The way of requests to the Placement of a simulation: late, or twice, or not at all,
and answers that are lost."""

import json
import math
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import requests
import urllib3
from keystoneauth1 import exceptions as ks_exc

from tests.simulation.loop import WORLD, Loop
from tests.simulation.placement import Answer, PlacementModel, refusal

CLIENT_TIMEOUT_S = 60.0
"""``[placement] timeout``: seconds after which a client gives up."""
PROXY_S = 10.0
"""Seconds after which a proxy sends a request to another Placement."""
LATEST_S = 60.0
"""Seconds after a client or a proxy has given up in which Placement carries out its
request."""


@dataclass
class Weather:
    """The faults that befall requests to Placement, by probability.

    :ivar slow_s: the mean seconds of an answer.
    :ivar lost_before: Placement never gets the request.
    :ivar lost_after: Placement carries out the request, and the answer is lost.
    :ivar late: the client gives up, and Placement carries out the request afterwards.
    :ivar twice: a proxy sends the request twice.
    :ivar busy: a proxy answers by 503.
    :ivar down_since: since when no connection can be made; infinite while connections
        can be made.
    """

    slow_s: float = 0.03
    lost_before: float = 0.0
    lost_after: float = 0.0
    late: float = 0.0
    twice: float = 0.0
    busy: float = 0.0
    down_since: float = math.inf

    @property
    def is_down(self) -> bool:
        """True while no connection can be made."""
        return self.down_since < math.inf

    def become(self, other: 'Weather') -> None:
        """Take the values of another weather, but for an outage. All processes share
        the object."""
        self.__dict__.update({**other.__dict__, 'down_since': self.down_since})


class SimulatedHttp:
    """The adapter of keystoneauth1 with which a process reaches Placement."""

    connect_retries = None
    connect_retry_delay = None
    status_code_retries = None
    status_code_retry_delay = None

    def __init__(self, loop: Loop, model: PlacementModel, weather: Weather) -> None:
        self._loop = loop
        self._model = model
        self._weather = weather

    def request(
        self, path: str, method: str, data: bytes | None = None, **options: Any
    ) -> Any:
        """Send a request, as ``Adapter.request`` does.

        :raises ClientException: there is no answer.
        """
        loop = self._loop
        weather = self._weather
        loop.check_alive()
        body = json.loads(data) if data else None
        timeout = options.get('timeout') or CLIENT_TIMEOUT_S
        fate = loop.random.random()
        loop.sleep(loop.random.expovariate(2 / weather.slow_s))

        if weather.is_down:
            _fail(requests.ConnectionError(_Unreachable()), ks_exc.ConnectFailure)
        for probability, way in (
            (weather.busy, self._busy),
            (weather.lost_before, self._lost_before),
            (weather.lost_after, self._lost_after),
            (weather.late, self._late),
            (weather.twice, self._twice),
        ):
            if fate < probability:
                return way(method, path, body, timeout)
            fate -= probability
        return self._answered(self._model.handle(method, path, body))

    def _busy(self, method: str, path: str, body: Any, timeout: float) -> Any:
        return self._answered(refusal(503, 'busy'))

    def _lost_before(self, method: str, path: str, body: Any, timeout: float) -> Any:
        self._loop.sleep(timeout)
        _fail(requests.ReadTimeout(), ks_exc.ConnectTimeout)

    def _lost_after(self, method: str, path: str, body: Any, timeout: float) -> Any:
        self._model.handle(method, path, body)
        if self._loop.random.random() < 0.5:
            # The connection breaks at once.
            _fail(requests.ConnectionError('reset'), ks_exc.ConnectFailure)
        self._loop.sleep(timeout)
        _fail(requests.ReadTimeout(), ks_exc.ConnectTimeout)

    def _late(self, method: str, path: str, body: Any, timeout: float) -> Any:
        loop = self._loop

        def carry_out() -> None:
            loop.sleep(timeout + loop.random.uniform(0, LATEST_S))
            self._model.handle(method, path, body)

        # Placement goes on, whatever becomes of the client.
        loop.spawn(carry_out, WORLD)
        loop.sleep(timeout)
        _fail(requests.ReadTimeout(), ks_exc.ConnectTimeout)

    def _twice(self, method: str, path: str, body: Any, timeout: float) -> Any:
        loop = self._loop

        def carry_out_first() -> None:
            loop.sleep(loop.random.uniform(0, PROXY_S + 1))
            if loop.random.random() < 0.5:
                loop.sleep(loop.random.uniform(0, LATEST_S))
            self._model.handle(method, path, body)

        # A Placement hangs for a while, so that the proxy turns to another one.
        loop.spawn(carry_out_first, WORLD)
        loop.sleep(min(timeout, PROXY_S))
        return self._answered(self._model.handle(method, path, body))

    def _answered(self, answer: Answer) -> Any:
        """The answer, after its way back."""
        loop = self._loop
        loop.sleep(loop.random.expovariate(2 / self._weather.slow_s))
        if self._weather.is_down:
            # Placement has stopped meanwhile.
            _fail(requests.ConnectionError('reset'), ks_exc.ConnectFailure)
        status, body = answer
        content = b'' if body is None else json.dumps(body).encode()
        return SimpleNamespace(status_code=status, content=content, reason='')


class _Unreachable:
    """The reason of a connection that was never made, for the error of requests."""

    def __init__(self) -> None:
        self.reason = urllib3.exceptions.NewConnectionError(None, 'refused')


def _fail(cause: Exception, error: type[ks_exc.ClientException]) -> None:
    """Raise an error of keystoneauth1 about an error of requests."""
    try:
        raise cause
    except Exception:
        raise error('no answer')  # noqa: B904 - as keystoneauth1 does
