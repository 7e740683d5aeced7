# SPDX-License-Identifier: Apache-2.0
"""Placement's API as it is on the wire: requests, and how answers say no.

What becomes of a request depends on who must act, and on whether Placement may have done it:

====================  ==================================================================
what comes back       what becomes of it
====================  ==================================================================
no connection, 502,   tried again with back-off for a while, unless nova.conf says how
503, half an answer   often: ``[placement]`` has keystoneauth1's options for that
nothing in time, 504  refused, and so are all the next at once, until a probe is answered
500, 501, ...         refused
401, 403, 406         refused: the credentials or Placement's version are to be mended
others                an answer, whether it is yes or no
====================  ==================================================================
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NoReturn, TypeVar

import msgspec
import requests
import tenacity
import urllib3
from keystoneauth1 import adapter
from keystoneauth1 import exceptions as ks_exc

from novasched.breaker import Breaker
from novasched.errors import PlacementUnauthorized, PlacementUnavailable
from novasched.secrets import hide

# Operators search for what this logger of nova's writes.
LOG = logging.getLogger('nova.scheduler.client.report')

MICROVERSION = '1.36'
READ_MICROVERSION = '1.28'
CONCURRENT_UPDATE = 'placement.concurrent_update'
ATTEMPTS = 4
PAUSE, PATIENCE = 0.1, 5.0
"""Seconds after which a failure that may pass is tried again, at first, and in which it is:
Placement is restarted in less."""
PROBE = '/resource_providers?name=novasched'
"""Something small that Placement asks its database for."""
PROBES = (1.0, 5.0)
"""Seconds between probes, at first and in the end."""
PASSING, SLOW = (429, 502, 503), 504
"""What a proxy answers while no Placement takes requests, and when one took too long."""
REFUSALS = (401, 403, 406)
TOLD = 500
"""Characters at the most of what an answer has to say."""

Body = TypeVar('Body')


class Unanswered(PlacementUnavailable):
    """Placement may have done what it was asked to."""


class _Passing(Exception):
    """It may be over soon. ``sent``: Placement may have had the request; ``retries`` and
    ``delay`` are what nova.conf says about such a failure, if it does."""

    def __init__(self, why: str, sent: bool, retries: int | None, delay: float | None) -> None:
        super().__init__(why)
        self.sent, self.retries, self.delay = sent, retries, delay


@dataclass(frozen=True, slots=True)
class Answer:
    """What Placement says. ``repeated``: it may have been asked the same before, and have
    done it, so that it says no to what it has said yes to."""

    status_code: int
    content: bytes
    reason: str = ''
    repeated: bool = False


class Api:
    """Sends requests; sessions, tokens and the reuse of connections are keystoneauth1's."""

    def __init__(
        self, http: adapter.Adapter, pause: float = PAUSE, probes: tuple[float, float] = PROBES
    ) -> None:
        """:param pause: seconds before something is tried again, about; they double."""
        self.http = http
        self._pause = pause
        self._breaker = Breaker(self._probe, PlacementUnavailable, *probes)
        # Made once: one refers to itself, and would stay until garbage is looked for.
        self._persistently = functools.cache(self._until_it_is_over)
        self._among_others = tenacity.Retrying(
            retry=tenacity.retry_if_result(_is_contended),
            stop=tenacity.stop_after_attempt(ATTEMPTS),
            wait=tenacity.wait_random_exponential(multiplier=pause / 2, max=1),
            retry_error_callback=_last_answer,
        )

    @property
    def left_alone(self) -> bool:
        """Whether Placement is, until it answers again."""
        return self._breaker.why is not None

    def close(self) -> None:
        """Probe no more."""
        self._breaker.close()

    def call(
        self,
        method: str,
        path: str,
        trace_id: str | None = None,
        microversion: str = MICROVERSION,
        data: bytes | None = None,
        patience: float = PATIENCE,
    ) -> Answer:
        """The answer, whether it is yes or no. What is written says what it replaces, so that
        asking twice does no more than asking once.

        :param patience: seconds in which it is tried again.
        :raises PlacementUnauthorized: it does not accept the credentials.
        :raises Unanswered: there is no answer, or one that leaves open what it has done.
        :raises PlacementUnavailable: there is none, and it has done nothing.
        """
        sent = False

        def once() -> Answer:
            nonlocal sent
            try:
                answer = self._once(method, path, trace_id, microversion, data)
            except (_Passing, Unanswered) as error:
                sent = sent or getattr(error, 'sent', True)
                raise
            return replace(answer, repeated=True) if sent else answer

        try:
            return self._persistently(patience)(once)
        except (_Passing, PlacementUnavailable) as error:
            if sent:
                raise Unanswered(str(error)) from None
            if isinstance(error, _Passing):
                raise PlacementUnavailable(str(error)) from None
            raise

    def change(
        self, method: str, path: str, body: Mapping[str, Any], trace_id: str | None
    ) -> Answer:
        """Write allocations; again, with back-off, while others write to the same
        providers. The last answer counts, so that another host is tried then.

        :raises PlacementUnavailable: see :meth:`call`.
        """
        data = msgspec.json.encode(body)
        repeated = False

        def once() -> Answer:
            nonlocal repeated
            try:
                answer = self.call(method, path, trace_id, data=data)
            except PlacementUnavailable as error:
                if repeated:
                    raise Unanswered(str(error)) from None
                raise
            repeated = repeated or answer.repeated
            return replace(answer, repeated=repeated)

        return self._among_others(once)

    def _until_it_is_over(self, patience: float) -> tenacity.Retrying:
        return tenacity.Retrying(
            retry=tenacity.retry_if_exception_type(_Passing),
            stop=_Stop(patience),
            wait=_Wait(multiplier=self._pause, max=1),
            reraise=True,
        )

    def _once(
        self, method: str, path: str, trace_id: str | None, microversion: str, data: bytes | None
    ) -> Answer:
        if why := self._breaker.why:
            raise PlacementUnavailable(f'left alone until it answers again: {why}')
        headers = {'Content-Type': 'application/json'} if data else {}
        if trace_id:
            headers['X-Openstack-Request-Id'] = trace_id
        try:
            response = self.http.request(
                path,
                method,
                data=data,
                headers=headers,
                microversion=microversion,
                raise_exc=False,
                # Done here: what is written twice is not to go unnoticed.
                connect_retries=0,
                status_code_retries=0,
            )
        except (ks_exc.Unauthorized, ks_exc.MissingAuthPlugin) as error:
            raise PlacementUnauthorized(_short(error)) from None
        except (ks_exc.ClientException, ValueError, OSError) as error:  # the last of TLS's files
            self._fail(error)
        answer = Answer(response.status_code, response.content, response.reason or '')
        if answer.status_code >= 500 or answer.status_code in (*REFUSALS, *PASSING):
            self._refuse(answer)
        return answer

    def _fail(self, error: Exception) -> NoReturn:
        """Tell what comes of there being no answer."""
        why, cause = _short(error), error.__context__
        if isinstance(error, ks_exc.ConnectTimeout):
            self._leave_alone(why)
            if isinstance(cause, requests.ConnectTimeout):
                raise PlacementUnavailable(why) from None
            raise Unanswered(why) from None
        status = getattr(error, 'http_status', 0)  # keystone's
        broken = isinstance(
            cause, (requests.ConnectionError, requests.exceptions.ChunkedEncodingError)
        )
        if status in PASSING:
            raise self._status(why, sent=False) from None
        if broken:
            http = self.http
            sent = not _is_refused(cause)
            raise _Passing(why, sent, http.connect_retries, http.connect_retry_delay) from None
        raise Unanswered(why) from None

    def _refuse(self, answer: Answer) -> NoReturn:
        """Tell what comes of an answer that is neither yes nor no."""
        status = answer.status_code
        why = f'Placement answers {status} {detail(answer)}'.rstrip()
        if status in (401, 403):
            raise PlacementUnauthorized(f'{why} (see the credentials in [placement])')
        if status == 406:
            needed = f'microversion {MICROVERSION}, which came with Train'
            raise PlacementUnavailable(f'{why} (Placement is to be upgraded: it lacks {needed})')
        if status in PASSING:
            raise self._status(why, sent=True)
        if status == SLOW:
            self._leave_alone(why)
        raise Unanswered(why)

    def _status(self, why: str, sent: bool) -> _Passing:
        http = self.http
        return _Passing(why, sent, http.status_code_retries, http.status_code_retry_delay)

    def _leave_alone(self, why: str) -> None:
        if self._breaker.trip(why):
            LOG.warning('Placement is left alone until it answers again: %s', why)

    def _probe(self) -> None:
        """:raises PlacementUnavailable: it does not answer yet."""
        try:
            response = self.http.request(PROBE, 'GET', microversion=MICROVERSION, raise_exc=False)
        except (ks_exc.Unauthorized, ks_exc.MissingAuthPlugin):
            pass
        except (ks_exc.ClientException, ValueError, OSError) as error:
            raise PlacementUnavailable(_short(error)) from None
        else:
            if response.status_code >= 500:
                raise PlacementUnavailable(str(response.status_code))
        LOG.info('Placement answers again')


def decode(answer: Answer, kind: type[Body]) -> Body:
    """What an answer holds.

    :raises PlacementUnavailable: it is no such thing, or no answer to the question.
    """
    if answer.status_code != 200:
        raise PlacementUnavailable(f'Placement answers {answer.status_code} {detail(answer)}')
    try:
        return msgspec.json.decode(answer.content, type=kind)
    except (ValueError, RecursionError) as error:
        raise PlacementUnavailable(f'Placement sends what cannot be read: {error}') from None


def is_generation_conflict(answer: Answer) -> bool:
    """Whether it says that a consumer is not as the writer thought."""
    return answer.status_code == 409 and 'consumer generation conflict' in _first(answer).detail


def detail(answer: Answer) -> str:
    """What Placement has to say, on one line."""
    return _short(_first(answer).detail or answer.reason)


class _Error(msgspec.Struct):
    detail: str = ''
    code: str = ''


class _Errors(msgspec.Struct):
    errors: list[_Error]


def _first(answer: Answer) -> _Error:
    """The error in Placement's answer; its code came with microversion 1.23."""
    try:
        errors = msgspec.json.decode(answer.content, type=_Errors).errors
    except (ValueError, RecursionError):
        return _Error()
    return errors[0] if errors else _Error()


class _Stop(tenacity.stop_after_delay):
    """After some seconds, unless nova.conf says after how many times."""

    def __call__(self, state: tenacity.RetryCallState) -> bool:
        error = _passing(state)
        if error.retries is None:
            return super().__call__(state)
        return state.attempt_number > error.retries


class _Wait(tenacity.wait_random_exponential):
    """With back-off, unless nova.conf says how long."""

    def __call__(self, state: tenacity.RetryCallState) -> float:
        delay = _passing(state).delay
        return super().__call__(state) if delay is None else delay


def _passing(state: tenacity.RetryCallState) -> _Passing:
    error = state.outcome.exception() if state.outcome else None
    assert isinstance(error, _Passing)
    return error


def _is_contended(answer: Answer) -> bool:
    if answer.status_code != 409 or is_generation_conflict(answer):
        return False
    return _first(answer).code == CONCURRENT_UPDATE


def _last_answer(state: tenacity.RetryCallState) -> Any:
    return state.outcome.result() if state.outcome else None


def _is_refused(cause: BaseException | None) -> bool:
    """Whether there was never a connection that could have taken a request."""
    args = getattr(cause, 'args', ())
    reason = getattr(args[0], 'reason', None) if args else None
    return isinstance(reason, urllib3.exceptions.NewConnectionError)


def _short(what: object) -> str:
    """A text for the log, on one line and without secrets."""
    return ' '.join(hide(what).split())[:TOLD]
