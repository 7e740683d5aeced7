# SPDX-License-Identifier: Apache-2.0
"""Placement's API as it is on the wire: requests, their retries, and what failures
mean.

A failure is classified by who must act, and by whether Placement may have done the
request:

====================  ==================================================================
response              result
====================  ==================================================================
no connection, 502,   sent again with back-off for a while, unless nova.conf says how
503, half an answer   often: ``[placement]`` has keystoneauth1's options for that
nothing in time, 504  an error; if no other call is answered the circuit opens, and all
                      the next get the error at once, until a probe is answered
500, 501, ...         an error
401, 403, 406         an error: the credentials or Placement's version are to be mended
others                an answer, be it yes or no
====================  ==================================================================

An error is not the end of a request: its driver asks again for a while.
"""

import logging
import random
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec
import requests
import urllib3
from keystoneauth1 import adapter
from keystoneauth1 import exceptions as ks_exc

from novasched.concurrency.circuit_breaker import (
    FIRST_PROBE_S,
    LAST_PROBE_S,
    CircuitBreaker,
)
from novasched.conf.redaction import hide
from novasched.placement.wire import Error, Errors
from novasched.scheduler.errors import PlacementUnauthorized, PlacementUnavailable

# Operators search for what this logger of nova's writes.
LOG = logging.getLogger('nova.scheduler.client.report')

MICROVERSION = '1.36'
READ_MICROVERSION = '1.28'
CONCURRENT_UPDATE = 'placement.concurrent_update'
CONFLICT_ATTEMPTS = 4
"""Tries of a write while others write to the same providers."""
RETRY_PAUSE_S = 0.1
RETRY_LIMIT_S = 5.0
"""Seconds after which a request is first sent again, and in which it is: a restart
takes less."""
LONGEST_PAUSE_S = 1.0
PROBE = '/resource_providers?name=novasched'
"""Something small that Placement asks its database for."""
PROBE_TIMEOUT_S = 5.0
TRANSIENT_STATUSES = (429, 502, 503)
TIMEOUT_STATUS = 504
"""What a proxy answers while no Placement takes requests, and when one took too
long."""
REFUSAL_STATUSES = (401, 403, 406)
NO_ANSWER_ERRORS = (ks_exc.ClientException, ValueError, OSError)
"""The last of them of keystoneauth1 that cannot read the files of TLS."""
MAX_DETAIL_LENGTH = 500
"""Characters at the most of what an answer has to say."""
Body = TypeVar('Body')


class OutcomeUnknown(PlacementUnavailable):
    """Placement may have done the request."""


class CircuitOpen(PlacementUnavailable):
    """The request was not sent, since Placement has not answered another one."""


@dataclass(frozen=True, slots=True)
class Response:
    """An answer of Placement. ``repeated``: the request may have been sent, and done,
    before, so that Placement says no to what it has said yes to."""

    status_code: int
    content: bytes
    reason: str = ''
    repeated: bool = False

    def __str__(self) -> str:
        return f'{self.status_code} {self.detail}'.rstrip()

    @property
    def detail(self) -> str:
        """Placement's explanation, on one line."""
        return _one_line(self._error.detail or self.reason)

    @property
    def is_generation_conflict(self) -> bool:
        """True if a consumer is not as the writer thought."""
        return (
            self.status_code == 409
            and 'consumer generation conflict' in self._error.detail
        )

    @property
    def is_contended(self) -> bool:
        """True if others write to the same providers."""
        is_conflict = self.status_code == 409 and not self.is_generation_conflict
        return is_conflict and self._error.code == CONCURRENT_UPDATE

    def decode(self, kind: type[Body]) -> Body:
        """Decode the body of an answer.

        :raises PlacementUnavailable: the body is no such thing, or no answer to the
            question.
        """
        if self.status_code != 200:
            raise PlacementUnavailable(f'Placement answers {self}')
        try:
            return msgspec.json.decode(self.content, type=kind)
        except (ValueError, RecursionError) as error:
            raise PlacementUnavailable(
                f'Placement sends what cannot be read: {error}'
            ) from None

    @property
    def _error(self) -> Error:
        """The error in the answer; its code came with microversion 1.23."""
        try:
            errors = msgspec.json.decode(self.content, type=Errors).errors
        except (ValueError, RecursionError):
            return Error()
        if errors:
            return errors[0]
        return Error()


@dataclass(frozen=True, slots=True)
class _Failure:
    """One try without an answer.

    :ivar error: is raised, unless Placement has perhaps done the request.
    :ivar retry: for failures that may be over soon, how often nova.conf has the request
        sent again, and after how many seconds; None for what it does not say.
    """

    why: str
    error: type[PlacementUnavailable] = PlacementUnavailable
    maybe_done: bool = False
    retry: tuple[int | None, float | None] | None = None


class PlacementApi:
    """Sends requests; sessions, tokens and the reuse of connections are
    keystoneauth1's."""

    def __init__(
        self,
        http: adapter.Adapter,
        pause: float = RETRY_PAUSE_S,
        probes: tuple[float, float] = (FIRST_PROBE_S, LAST_PROBE_S),
        retry_limit: float = RETRY_LIMIT_S,
    ) -> None:
        """:param pause: seconds before a request is sent again, about; they double."""
        self.http = http
        self._pause = pause
        self._retry_limit = retry_limit
        self.breaker = CircuitBreaker(
            self._probe, PlacementUnavailable, *probes, _log_circuit
        )
        self._authorized: bool | None = None  # until there is an answer

    def send(
        self,
        method: str,
        path: str,
        trace_id: str | None = None,
        body: Mapping[str, Any] | None = None,
        microversion: str = MICROVERSION,
        retry_s: float | None = None,
        once: bool = False,
    ) -> Response:
        """Send a request until there is an answer, be it yes or no. A write says what
        it replaces, so that it may be sent again, also while others write to the same
        providers.

        :param retry_s: seconds in which it is sent again, if fewer than usual.
        :param once: it is sent once, whatever nova.conf says.
        :raises PlacementUnauthorized: Placement does not accept the credentials.
        :raises OutcomeUnknown: there is no answer, or one that leaves open what it has
            done.
        :raises PlacementUnavailable: there is none, and it has done nothing.
        """
        if retry_s is None:
            limit = self._retry_limit
        else:
            limit = min(retry_s, self._retry_limit)
        data = None if body is None else msgspec.json.encode(body)
        headers = {'X-Openstack-Request-Id': trace_id} if trace_id else {}
        headers |= {} if data is None else {'Content-Type': 'application/json'}
        maybe_done = False
        failures = 0
        conflicts = 0
        start = time.monotonic()
        failure: _Failure | None
        while True:
            if reason := self.breaker.reason:
                why = f'left alone until it answers again: {reason}'
                if maybe_done:
                    raise OutcomeUnknown(why)
                raise CircuitOpen(why, self.breaker.wait_closed)
            began = time.monotonic()
            try:
                response = self.http.request(
                    path,
                    method,
                    data=data,
                    headers=headers,
                    microversion=microversion,
                    # Done here: what is written twice is not to go unnoticed.
                    raise_exc=False,
                    connect_retries=0,
                    status_code_retries=0,
                )
            except NO_ANSWER_ERRORS as error:
                failure = self._without_answer(error, began)
            else:
                answer = Response(
                    response.status_code,
                    response.content,
                    response.reason or '',
                    maybe_done,
                )
                failure = self._judged(answer, began)
                if failure is None:
                    if (
                        once
                        or not answer.is_contended
                        or conflicts == CONFLICT_ATTEMPTS - 1
                    ):
                        return answer
                    pause = _backoff(self._pause / 2, conflicts)
                    conflicts = conflicts + 1
                    failures = 0
                    start = time.monotonic()
            if failure is not None:
                self.breaker.missed(failure.why)
                maybe_done |= failure.maybe_done
                if once:
                    again = None
                else:
                    again = self._pause_after(failure, failures, start + limit)
                if again is None:
                    raise (OutcomeUnknown if maybe_done else failure.error)(failure.why)
                pause = again
                failures = failures + 1
            time.sleep(pause)

    def _pause_after(
        self, failure: _Failure, earlier: int, until: float
    ) -> float | None:
        """Seconds after which a request that failed is sent again; None if it is not.

        :param earlier: how many times it failed before.
        :param until: when it is sent no more, unless nova.conf says after how many
            times.
        """
        if failure.retry is None:
            return None
        retries, delay = failure.retry
        if time.monotonic() >= until if retries is None else earlier >= retries:
            return None
        if delay is None:
            return _backoff(self._pause, earlier)
        return delay

    def _without_answer(self, error: Exception, began: float) -> _Failure:
        why = _one_line(error)
        cause = error.__context__
        if isinstance(error, (ks_exc.Unauthorized, ks_exc.MissingAuthPlugin)):
            return self._unauthorized(why)
        if isinstance(error, ks_exc.ConnectTimeout):
            self.breaker.failed(why, began)
            return _Failure(
                why, maybe_done=not isinstance(cause, requests.ConnectTimeout)
            )
        if getattr(error, 'http_status', 0) in TRANSIENT_STATUSES:  # keystone's
            return self._transient_status(why, maybe_done=False)
        if isinstance(
            cause, (requests.ConnectionError, requests.exceptions.ChunkedEncodingError)
        ):
            retry = self.http.connect_retries, self.http.connect_retry_delay
            # Without a connection there was none that could have taken the request.
            reason = getattr(next(iter(cause.args), None), 'reason', None)
            never_connected = isinstance(reason, urllib3.exceptions.NewConnectionError)
            return _Failure(why, maybe_done=not never_connected, retry=retry)
        return _Failure(why, maybe_done=True)

    def _judged(self, answer: Response, began: float) -> _Failure | None:
        """The failure that an answer comes to if it is neither yes nor no."""
        status = answer.status_code
        if status < 500 and status not in (*REFUSAL_STATUSES, *TRANSIENT_STATUSES):
            self.breaker.succeeded()
            if self._authorized is False:
                LOG.info('The credentials in [placement] are accepted again')
            self._authorized = True
            return None
        why = f'Placement answers {answer}'
        if status in (401, 403):
            return self._unauthorized(f'{why} (see the credentials in [placement])')
        if status == 406:
            needed = f'microversion {MICROVERSION}, which came with Train'
            return _Failure(f'{why} (Placement is to be upgraded: it lacks {needed})')
        if status in TRANSIENT_STATUSES:
            return self._transient_status(why, maybe_done=True)
        if status == TIMEOUT_STATUS:
            self.breaker.failed(why, began)
        return _Failure(why, maybe_done=True)

    def _transient_status(self, why: str, maybe_done: bool) -> _Failure:
        retry = self.http.status_code_retries, self.http.status_code_retry_delay
        return _Failure(why, maybe_done=maybe_done, retry=retry)

    def _unauthorized(self, why: str) -> _Failure:
        """The failure of refused credentials. The log has the first after they were
        accepted; of those that never were, the caller tells."""
        if self._authorized:
            self._authorized = False
            LOG.error('The credentials in [placement] are refused: %s', why)
        return _Failure(why, PlacementUnauthorized)

    def _probe(self) -> None:
        """:raises PlacementUnavailable: Placement does not answer yet."""
        try:
            response = self.http.request(
                PROBE,
                'GET',
                microversion=MICROVERSION,
                raise_exc=False,
                timeout=PROBE_TIMEOUT_S,
            )
        except (ks_exc.Unauthorized, ks_exc.MissingAuthPlugin):
            pass
        except NO_ANSWER_ERRORS as error:
            raise PlacementUnavailable(_one_line(error)) from None
        else:
            if response.status_code >= 500:
                raise PlacementUnavailable(str(response.status_code))


def _backoff(first: float, earlier: int) -> float:
    """Seconds before the next try, at random."""
    return random.uniform(0, min(LONGEST_PAUSE_S, first * 2**earlier))


def _one_line(text: object) -> str:
    """A text for the log, on one line and without secrets."""
    return ' '.join(hide(text).split())[:MAX_DETAIL_LENGTH]


def _log_circuit(reason: str | None) -> None:
    if reason is None:
        LOG.info('Placement answers again')
    else:
        LOG.warning('Placement is left alone until it answers again: %s', reason)
