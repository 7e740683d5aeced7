# SPDX-License-Identifier: Apache-2.0
"""Errors of requests. Each docstring begins with the person who must act.

Errors of the configuration are in ``conf/errors.py``. A refused claim or an empty list
of candidates is an answer, not an error.
"""

from collections.abc import Callable

from novasched.conf.errors import NovaschedError
from novasched.conf.redaction import cut

MAX_TEXT_CHARACTERS = 2_000
"""Maximum length of an error's text. Some errors quote texts of users, which may have
100,000 characters."""
NO_CANDIDATES = (
    'Got no allocation candidates from the Placement API. This could be due to'
    ' insufficient resources or a temporary occurrence as compute nodes start up.'
)


class NoValidHost(NovaschedError):
    """For the user: no host can take the instance. ``reason`` goes to the caller."""

    def __init__(self, reason: str = '') -> None:
        reason = cut(reason, MAX_TEXT_CHARACTERS)
        super().__init__(f'No valid host was found. {reason}')
        self.reason = reason


class StaleData(NovaschedError):
    """For the driver: the data of a try is out of date. The request is decided again
    with fresh data; no caller gets this error."""


class IncompleteData(StaleData):
    """For the driver: Placement's answer about all hosts does not tell why claims are
    refused. The request is decided again by the answer to its own query; no caller gets
    this error."""


class BadRequest(NovaschedError):
    """For the caller: the message is no valid request."""

    def __init__(self, text: str) -> None:
        super().__init__(cut(text, MAX_TEXT_CHARACTERS))


class BadPlugin(NovaschedError):
    """For the plugin's author: a filter, weigher or driver does not load or raised."""


class MetricMissing(NovaschedError):
    """For the operator: a host lacks a metric that ``[metrics] required`` demands."""

    def __init__(self, name: str, host: str, node: str) -> None:
        super().__init__(
            f'Metric {name} could not be found on the compute host node {host}.{node}.'
        )
        self.name = name
        self.host = host
        self.node = node


class Unavailable(NovaschedError):
    """For the operator: a service that requests need fails, perhaps for a short time.

    ``is_over(seconds)`` waits for the end of the failure, for ``seconds`` at most, and
    returns True if the service may be asked again.
    """

    def __init__(
        self, text: str, is_over: Callable[[float], bool] = lambda seconds: True
    ) -> None:
        super().__init__(text)
        self.is_over = is_over


class PlacementUnavailable(Unavailable):
    """For the operator: Placement does not answer, or answers with a failure."""


class PlacementUnauthorized(PlacementUnavailable):
    """For the operator: Placement or keystone rejects the credentials."""


class NetworkUnavailable(NovaschedError):
    """For the operator: Neutron does not answer, or a segment of a routed network lacks
    its aggregate in Placement."""


class ClaimFailed(NovaschedError):
    """For the caller: another process has changed the consumer during the claim, so
    that no further host may be tried. The text is the text of nova's
    AllocationUpdateFailed."""

    def __init__(self, consumer_uuid: str, error: str) -> None:
        super().__init__(
            f'Failed to update allocations for consumer {consumer_uuid}. Error: {error}'
        )
        self.consumer_uuid = consumer_uuid
        self.error = error


class DatabaseUnavailable(Unavailable):
    """For the operator: a database cannot be reached or lacks nova's tables."""
