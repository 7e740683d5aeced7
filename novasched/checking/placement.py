# SPDX-License-Identifier: Apache-2.0
"""Placement: there, new enough, and willing to talk to us."""

from __future__ import annotations

import functools
from collections.abc import Iterator

from keystoneauth1 import adapter
from keystoneauth1 import exceptions as ks_exc

from novasched.cells.mappings import CELL0
from novasched.checking.finding import Finding, Level
from novasched.checking.nova_conf import NovaConf
from novasched.checking.questions import Question
from novasched.errors import NovaschedError, PlacementUnauthorized, PlacementUnavailable
from novasched.placement.api import MICROVERSION
from novasched.placement.client import PlacementClient
from novasched.service import http_adapter

AREA = 'Placement'
NOBODY = CELL0
"""A UUID that no resource provider has."""


def questions(nova_conf: NovaConf) -> list[Question]:
    """One: the version and the credentials of the same service."""
    return [Question(AREA, '[placement]', functools.partial(_check, nova_conf))]


def _check(nova_conf: NovaConf) -> Iterator[Finding]:
    try:
        http = http_adapter(nova_conf.conf, 'placement')
        newest = _newest(http)
    except NovaschedError as error:
        yield Finding(AREA, Level.ERROR, '[placement]', str(error))
        return
    if _numbers(newest) < _numbers(MICROVERSION):
        text = f'its newest microversion is {newest}; {MICROVERSION} is needed (Train)'
        yield Finding(AREA, Level.ERROR, 'microversion', text)
    else:
        text = f'up to {newest}; {MICROVERSION} is used'
        yield Finding(AREA, Level.OK, 'microversion', text)
    client = PlacementClient(nova_conf.settings, http)
    try:
        client.check()
        client.aggregates(NOBODY)
    except PlacementUnauthorized as error:
        yield Finding(AREA, Level.ERROR, 'credentials', f'not accepted: {error}')
    except PlacementUnavailable as error:
        yield Finding(AREA, Level.ERROR, 'credentials', f'not tried out: {error}')
    else:
        yield Finding(AREA, Level.OK, 'credentials', 'accepted')


def _newest(http: adapter.Adapter) -> str:
    """The newest microversion, which Placement tells everybody at its root.

    :raises PlacementUnavailable: it does not answer, or somebody else does.
    :raises PlacementUnauthorized: keystone, which knows where it is, refuses us.
    """
    try:
        response = http.get('/', authenticated=False, raise_exc=False)
    except (ks_exc.Unauthorized, ks_exc.MissingAuthPlugin) as error:
        raise PlacementUnauthorized(str(error)) from None
    except (ks_exc.ClientException, OSError) as error:  # the latter of the files of TLS
        raise PlacementUnavailable(str(error)) from None
    try:
        newest = str(response.json()['versions'][0]['max_version'])
        _numbers(newest)
    except (ValueError, KeyError, IndexError, TypeError):
        text = f'what answers there ({response.status_code}) is not Placement'
        raise PlacementUnavailable(text) from None
    return newest


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split('.'))
