# SPDX-License-Identifier: Apache-2.0
"""What can go wrong, by who must act.

A refused claim or an empty list of candidates is an answer, not an error; these are
for the cases in which somebody has to do something.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from novasched.secrets import hide


class NovaschedError(Exception):
    """Base of the errors below; its text is fit for a log and holds no secret."""


class NoValidHost(NovaschedError):
    """For the user: no host can take the server. ``reason`` goes to the caller."""

    def __init__(self, reason: str = '') -> None:
        super().__init__(f'No valid host was found. {reason}')
        self.reason = reason


class BadRequest(NovaschedError):
    """For the caller: the message is not a request that can be understood."""


class ConfigError(NovaschedError):
    """For the operator: an option's value stops the start. Names both, in one line."""

    def __init__(self, option: str, value: object, why: str) -> None:
        super().__init__(' '.join(f'{option} = {value}: {why}'.split()))


class BadPlugin(NovaschedError):
    """For the plugin's author: a filter, weigher or driver does not load or raised."""


class InstancesUnread(NovaschedError):
    """For the driver: a plugin turns out to look at the servers on a host, which were not
    read for it. It says so from now on, so the request can be answered anew."""


class MetricMissing(NovaschedError):
    """For the operator: a host lacks a metric that ``[metrics] required`` demands."""

    def __init__(self, name: str, host: str, node: str) -> None:
        super().__init__(
            f'Metric {name} could not be found on the compute host node {host}.{node}.'
        )
        self.name, self.host, self.node = name, host, node


class PlacementUnavailable(NovaschedError):
    """For the operator: Placement does not answer, or answers with a failure."""


class PlacementUnauthorized(PlacementUnavailable):
    """For the operator: Placement or keystone rejects the credentials."""


class NetworkUnavailable(NovaschedError):
    """For the operator: Neutron does not answer, or a segment of a routed network lacks
    its aggregate in Placement."""


class ClaimFailed(NovaschedError):
    """For the operator: a consumer is changed by somebody else while it is claimed,
    so that no further host may be tried for it."""


class DatabaseUnavailable(NovaschedError):
    """For the operator: a database cannot be reached or lacks nova's tables."""


@contextmanager
def blaming(plugin: str) -> Iterator[None]:
    """Name the plugin in whatever error comes out of it.

    :raises BadPlugin: it raised an error that is none of those above.
    """
    try:
        yield
    except NovaschedError:
        raise
    except Exception as error:
        raise BadPlugin(f'{plugin} raised {type(error).__name__}: {hide(error)}') from error
