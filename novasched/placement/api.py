# SPDX-License-Identifier: Apache-2.0
"""Placement's API as it is on the wire: requests, and how answers say no."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import tenacity
from keystoneauth1 import adapter
from keystoneauth1 import exceptions as ks_exc

from novasched.errors import PlacementUnauthorized, PlacementUnavailable
from novasched.secrets import hide

MICROVERSION = '1.36'
READ_MICROVERSION = '1.28'
CONCURRENT_UPDATE = 'placement.concurrent_update'
ATTEMPTS = 4


class Api:
    """Sends requests; sessions, tokens and the reuse of connections are keystoneauth1's."""

    def __init__(self, http: adapter.Adapter) -> None:
        self.http = http

    def call(
        self,
        method: str,
        path: str,
        trace_id: str | None = None,
        microversion: str = MICROVERSION,
        data: bytes | None = None,
    ) -> Any:
        """The answer, whatever its status.

        :raises PlacementUnauthorized: it does not accept the credentials.
        :raises PlacementUnavailable: there is none.
        """
        headers = {'Content-Type': 'application/json'} if data else {}
        if trace_id:
            headers['X-Openstack-Request-Id'] = trace_id
        try:
            return self.http.request(
                path,
                method,
                data=data,
                headers=headers,
                microversion=microversion,
                raise_exc=False,
            )
        except (ks_exc.Unauthorized, ks_exc.MissingAuthPlugin) as error:
            raise PlacementUnauthorized(hide(error)) from None
        except (ks_exc.ClientException, OSError) as error:  # the latter of the files of TLS
            raise PlacementUnavailable(hide(error)) from None

    def change(self, method: str, path: str, body: Mapping[str, Any], trace_id: str | None) -> Any:
        """Write allocations; again, with back-off, while others write to the same
        providers. The last answer counts, so that another host is tried then."""
        retrying = tenacity.Retrying(
            retry=tenacity.retry_if_result(_is_contended),
            stop=tenacity.stop_after_attempt(ATTEMPTS),
            wait=tenacity.wait_random_exponential(multiplier=0.05, max=1),
            retry_error_callback=_last_answer,
        )
        return retrying(self.call, method, path, trace_id, data=msgspec.json.encode(body))


def is_generation_conflict(response: Any) -> bool:
    """Whether it says that a consumer is not as the writer thought."""
    error = _first_error(response).get('detail', '') if response.status_code == 409 else ''
    return 'consumer generation conflict' in error


def detail(response: Any) -> str:
    """What Placement has to say, on one line."""
    text = _first_error(response).get('detail') or response.reason or ''
    return ' '.join(str(text).split())


def _last_answer(state: tenacity.RetryCallState) -> Any:
    return state.outcome.result() if state.outcome else None


def _is_contended(response: Any) -> bool:
    return _code(response) == CONCURRENT_UPDATE and not is_generation_conflict(response)


def _code(response: Any) -> str | None:
    """The error code in Placement's answer (microversion 1.23)."""
    if response.status_code != 409:
        return None
    return _first_error(response).get('code')


def _first_error(response: Any) -> dict[str, str]:
    try:
        errors = response.json()['errors']
    except (ValueError, KeyError, TypeError):
        return {}
    return errors[0] if isinstance(errors, list) and errors and isinstance(errors[0], dict) else {}
