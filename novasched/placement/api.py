# SPDX-License-Identifier: Apache-2.0
"""Requests to Placement, their retries, and the meaning of failures.

A failure is classified by the person who must act, and by the chance that Placement has
carried out the request:

====================  ==================================================================
response              result
====================  ==================================================================
no connection, 429,   repeated with back-off for a while, or as often as keystoneauth1's
502, 503, a body cut  options in ``[placement]`` say
no response in time,  an error; if other requests get no response either, the circuit
504                   opens: further requests fail at once until a probe succeeds
500, 501, ...         an error
401, 403, 406         an error: an operator must correct the credentials, or upgrade
                      Placement
other statuses        an answer, yes or no
====================  ==================================================================

After an error the driver decides the request again, for a while.
"""

import logging
import random
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

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
from novasched.placement.wire import Body, Error, Errors, UnusableAnswer, decode
from novasched.scheduler.errors import PlacementUnauthorized, PlacementUnavailable

# Operators search for what this logger of nova's writes.
LOG = logging.getLogger('nova.scheduler.client.report')

MICROVERSION = '1.36'
READ_MICROVERSION = '1.28'
CONCURRENT_UPDATE = 'placement.concurrent_update'
CONTENDED_ATTEMPTS = 4
"""Attempts of a write while other clients write to the same providers."""
RETRY_PAUSE_S = 0.1
"""Longest pause before the first repetition, in seconds. It doubles each time."""
RETRY_LIMIT_S = 5.0
"""Seconds for which a request is repeated: a restart of Placement takes less."""
LONGEST_PAUSE_S = 1.0
"""Longest pause before a repetition, in seconds."""
PROBE = '/resource_providers?name=novasched'
"""A small request for which Placement reads its database."""
PROBE_TIMEOUT_S = 5.0
TRANSIENT_STATUSES = (429, 502, 503)
TIMEOUT_STATUS = 504
"""The status of a proxy while no Placement accepts requests, or after one took too
long."""
REFUSAL_STATUSES = (401, 403, 406)
NO_ANSWER_ERRORS = (ks_exc.ClientException, ValueError, OSError)
"""Errors of keystoneauth1; OSError if it cannot read the files of TLS."""
MAX_DETAIL_LENGTH = 500
"""Maximum length of an explanation of Placement in an error, in characters."""


class OutcomeUnknown(PlacementUnavailable):
    """Placement may have carried out the request."""


class CircuitOpen(PlacementUnavailable):
    """The request was not sent: Placement has not answered earlier requests."""


@dataclass(frozen=True, slots=True)
class Response:
    """An answer of Placement.

    :ivar repeated: the request was repeated, and Placement may have carried out an
        earlier attempt. Then a conflict may come from the request itself.
    """

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
        """True if a consumer has changed since the writer read it."""
        return (
            self.status_code == 409
            and 'consumer generation conflict' in self._error.detail
        )

    @property
    def is_contended(self) -> bool:
        """True if other clients write to the same providers."""
        is_conflict = self.status_code == 409 and not self.is_generation_conflict
        return is_conflict and self._error.code == CONCURRENT_UPDATE

    def decode(self, kind: type[Body]) -> Body:
        """Decode the body of an answer.

        :raises PlacementUnavailable: the status is not 200, or the body has another
            format.
        """
        if self.status_code != 200:
            raise PlacementUnavailable(f'Placement answers {self}')
        return decode(self.content, kind)

    @property
    def _error(self) -> Error:
        """The first error in the body; empty for a body in another format."""
        try:
            errors = decode(self.content, Errors).errors
        except UnusableAnswer:
            return Error()

        if errors:
            return errors[0]
        return Error()


@dataclass(frozen=True, slots=True)
class _Failure:
    """An attempt without an answer.

    :ivar error: the class to raise, unless Placement may have carried out the request.
    :ivar maybe_done: True if Placement may have carried out the request.
    :ivar retry: for a transient failure, the number of retries and the delay in seconds
        from nova.conf, each of them None by default. None for a lasting failure.
    """

    why: str
    error: type[PlacementUnavailable] = PlacementUnavailable
    maybe_done: bool = False
    retry: tuple[int | None, float | None] | None = None

    def exception(self, maybe_done: bool) -> PlacementUnavailable:
        """The error for the caller after the last attempt.

        :param maybe_done: Placement may have carried out one of the attempts.
        """
        if maybe_done:
            return OutcomeUnknown(self.why)
        return self.error(self.why)


@dataclass(frozen=True, slots=True)
class _Attempts:
    """The attempts at a request. Each failure gives a new value.

    :ivar limit: seconds for which the request is repeated after an answer, unless
        nova.conf limits the number of repetitions.
    :ivar longest: longest pause before the first repetition, in seconds.
    :ivar once: the request is not repeated at all.
    :ivar since: the last answer of Placement, or the first attempt (monotonic seconds).
    :ivar failures: the attempts without an answer since then.
    :ivar contended: the answers that other clients write to the same providers.
    :ivar maybe_done: Placement may have carried out an attempt without an answer.
    :ivar pause: seconds before the next attempt; None after the last attempt.
    """

    limit: float
    longest: float
    once: bool
    since: float
    failures: int = 0
    contended: int = 0
    maybe_done: bool = False
    pause: float | None = 0.0

    def after_contended(self) -> '_Attempts':
        """The attempts after an answer that other clients write to the same providers.
        Failures count from here again."""
        pause = None
        if not self.once and self.contended < CONTENDED_ATTEMPTS - 1:
            pause = _backoff(self.longest / 2, self.contended)
        return replace(
            self,
            since=time.monotonic(),
            failures=0,
            contended=self.contended + 1,
            pause=pause,
        )

    def after_failure(self, failure: _Failure) -> '_Attempts':
        """The attempts after an attempt without an answer."""
        pause = None
        # A number of retries in nova.conf takes the place of the limit in seconds.
        if failure.retry is not None and not self.once:
            retries, delay = failure.retry
            if retries is None:
                is_over = time.monotonic() >= self.since + self.limit
            else:
                is_over = self.failures >= retries
            if not is_over:
                pause = delay
                if delay is None:
                    pause = _backoff(self.longest, self.failures)
        return replace(
            self,
            failures=self.failures + 1,
            maybe_done=self.maybe_done or failure.maybe_done,
            pause=pause,
        )


class PlacementApi:
    """Sends requests. keystoneauth1 has the session, the token and the connections."""

    def __init__(
        self,
        http: adapter.Adapter,
        pause: float = RETRY_PAUSE_S,
        probes: tuple[float, float] = (FIRST_PROBE_S, LAST_PROBE_S),
        retry_limit: float = RETRY_LIMIT_S,
    ) -> None:
        """:param pause: see :data:`RETRY_PAUSE_S`.
        :param probes: the first and the longest pause between probes, in seconds.
        :param retry_limit: see :data:`RETRY_LIMIT_S`.
        """
        self.http = http
        self._pause = pause
        self._retry_limit = retry_limit
        self.breaker = CircuitBreaker(
            self._probe, PlacementUnavailable, *probes, _log_circuit
        )
        # Whether the credentials were accepted last; None before the first answer.
        self._authorized: bool | None = None

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
        """Send a request until Placement answers yes or no.

        Writes may be repeated, since a write names the generation to replace. Writes
        are repeated as well while other clients write to the same providers.

        :param retry_s: seconds for which the request is repeated, if fewer than the
            limit.
        :param once: send the request once, regardless of nova.conf.
        :raises PlacementUnauthorized: Placement does not accept the credentials.
        :raises OutcomeUnknown: without an answer, Placement may have carried out the
            request.
        :raises PlacementUnavailable: Placement has not carried out the request.
        """
        limit = self._retry_limit
        if retry_s is not None:
            limit = min(limit, retry_s)
        headers = {}
        if trace_id:
            headers['X-Openstack-Request-Id'] = trace_id
        data = None
        if body is not None:
            data = msgspec.json.encode(body)
            headers['Content-Type'] = 'application/json'
        request = partial(
            self.http.request,
            path,
            method,
            data=data,
            headers=headers,
            microversion=microversion,
            # keystoneauth1's retries would hide that a write is repeated.
            raise_exc=False,
            connect_retries=0,
            status_code_retries=0,
        )

        attempts = _Attempts(limit, self._pause, once, time.monotonic())
        while True:
            self._check_circuit(attempts.maybe_done)
            began = time.monotonic()
            result: Response | _Failure
            try:
                response = request()
            except NO_ANSWER_ERRORS as error:
                result = self._without_answer(error, began)
            else:
                result = self._judged(response, began, attempts.maybe_done)

            if isinstance(result, _Failure):
                self.breaker.missed(result.why)
                attempts = attempts.after_failure(result)
                if attempts.pause is None:
                    raise result.exception(attempts.maybe_done)
            else:
                if not result.is_contended:
                    return result
                attempts = attempts.after_contended()
                if attempts.pause is None:
                    return result
            time.sleep(attempts.pause)

    def _check_circuit(self, maybe_done: bool) -> None:
        """Check that requests may be sent.

        :param maybe_done: an earlier attempt, before the circuit opened, may have been
            carried out.
        """
        if reason := self.breaker.reason:
            why = f'circuit open: {reason}'
            if maybe_done:
                raise OutcomeUnknown(why)
            raise CircuitOpen(why, self.breaker.wait_closed)

    def _without_answer(self, error: Exception, began: float) -> _Failure:
        """Classify an error of keystoneauth1.

        :param began: when the request was sent (monotonic seconds).
        """
        why = _one_line(error)
        cause = error.__context__  # the error of requests
        if isinstance(error, (ks_exc.Unauthorized, ks_exc.MissingAuthPlugin)):
            return self._unauthorized(why)

        if isinstance(error, ks_exc.ConnectTimeout):
            self.breaker.failed(why, began)
            return _Failure(
                why, maybe_done=not isinstance(cause, requests.ConnectTimeout)
            )

        if getattr(error, 'http_status', 0) in TRANSIENT_STATUSES:
            # From keystone: without a token the request was not sent.
            return self._transient_status(why, maybe_done=False)

        if isinstance(
            cause, (requests.ConnectionError, requests.exceptions.ChunkedEncodingError)
        ):
            retry = self.http.connect_retries, self.http.connect_retry_delay
            # Without a connection Placement did not get the request.
            reason = getattr(next(iter(cause.args), None), 'reason', None)
            never_connected = isinstance(reason, urllib3.exceptions.NewConnectionError)
            return _Failure(why, maybe_done=not never_connected, retry=retry)

        return _Failure(why, maybe_done=True)

    def _judged(
        self, response: requests.Response, began: float, repeated: bool
    ) -> Response | _Failure:
        """Classify a response: an answer, yes or no, or a failure.

        :param repeated: Placement may have carried out an earlier attempt.
        """
        status = response.status_code
        answer = Response(status, response.content, response.reason or '', repeated)
        if status < 500 and status not in (*REFUSAL_STATUSES, *TRANSIENT_STATUSES):
            # A refusal is an answer as well: Placement works.
            self.breaker.succeeded()
            if self._authorized is False:
                LOG.info('The credentials in [placement] are accepted again')
            self._authorized = True
            return answer

        why = f'Placement answers {answer}'
        if status in (401, 403):
            return self._unauthorized(f'{why} (see the credentials in [placement])')
        if status == 406:
            needed = f'microversion {MICROVERSION}, which came with Train'
            return _Failure(f'{why} (Placement is to be upgraded: it lacks {needed})')
        if status in TRANSIENT_STATUSES:
            return self._transient_status(why, maybe_done=True)
        if status == TIMEOUT_STATUS:
            # A proxy has waited in vain, as a request without a response.
            self.breaker.failed(why, began)
        return _Failure(why, maybe_done=True)

    def _transient_status(self, why: str, maybe_done: bool) -> _Failure:
        retry = self.http.status_code_retries, self.http.status_code_retry_delay
        return _Failure(why, maybe_done=maybe_done, retry=retry)

    def _unauthorized(self, why: str) -> _Failure:
        """The failure of refused credentials. The log has the first refusal after
        credentials were accepted; before, the caller reports it."""
        if self._authorized:
            self._authorized = False
            LOG.error('The credentials in [placement] are refused: %s', why)
        return _Failure(why, PlacementUnauthorized)

    def _probe(self) -> None:
        """Send a probe, in the thread of the circuit breaker.

        :raises PlacementUnavailable: Placement does not answer yet.
        """
        try:
            response = self.http.request(
                PROBE,
                'GET',
                microversion=MICROVERSION,
                raise_exc=False,
                timeout=PROBE_TIMEOUT_S,
            )
        except (ks_exc.Unauthorized, ks_exc.MissingAuthPlugin):
            pass  # keystone answers, and requests report the credentials
        except NO_ANSWER_ERRORS as error:
            raise PlacementUnavailable(_one_line(error)) from None
        else:
            if response.status_code >= 500:
                raise PlacementUnavailable(str(response.status_code))


def _backoff(first: float, earlier: int) -> float:
    """Seconds before the next attempt, at random."""
    return random.uniform(0, min(LONGEST_PAUSE_S, first * 2**earlier))


def _one_line(text: object) -> str:
    """A text for the log, on one line and without secrets."""
    return ' '.join(hide(text).split())[:MAX_DETAIL_LENGTH]


def _log_circuit(reason: str | None) -> None:
    if reason is None:
        LOG.info('Placement answers again')
    else:
        LOG.warning(
            'Placement circuit open, requests fail fast until a probe succeeds: %s',
            reason,
        )
