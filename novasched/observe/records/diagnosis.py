# SPDX-License-Identifier: Apache-2.0
"""Asks Placement why it offers nothing: again, with one constraint less each time.

It runs after the request has been answered, with connections of its own, and without the limits
that hold for requests.
"""

import contextlib
from collections.abc import Sequence

import msgspec
import os_traits
from keystoneauth1 import adapter
from keystoneauth1 import exceptions as ks_exc

from novasched.conf.errors import NovaschedError
from novasched.conf.redaction import hide, one_line
from novasched.conf.settings import Settings
from novasched.observe.records.record import Diagnosis
from novasched.placement import query
from novasched.placement.api import MICROVERSION, Response
from novasched.scheduler.errors import PlacementUnavailable
from novasched.scheduler.model.host import AVAILABILITY_ZONE, Aggregate
from novasched.scheduler.model.request import Request
from novasched.scheduler.prefilters import Aggregates

DIAGNOSIS_TIMEOUT_S = 30.0
"""Seconds that Placement has for an answer."""

BAD_REQUEST_PREFIX = (
    'The server could not comply with the request since it is either malformed or otherwise '
    'incorrect. '
)
"""Every refusal of a query begins with it, before the reason."""


class _Candidates(msgspec.Struct):
    allocation_requests: list[msgspec.Raw]


def diagnose(
    settings: Settings, http: adapter.Adapter, aggregates: Aggregates, request: Request
) -> Diagnosis:
    """Find the constraints without any one of which Placement offers a candidate.

    :raises NovaschedError: Placement does not answer.
    """
    string = query.build(request, settings).string
    offered, refusal = _ask(http, query.for_one_candidate(string), request)
    if offered:
        return Diagnosis(passing=True)
    constraints = query.relaxed(string)
    tried = constraints[: settings.decisions_questions]
    found = [each for each in tried if _ask(http, each.string, request)[0]]
    known: Sequence[Aggregate] = ()
    if any(each.kind == 'aggregates' for each in found):
        with contextlib.suppress(NovaschedError):
            known = aggregates.all(request.arrived)
    names = tuple(_describe(each, request.availability_zone, known) for each in found)
    return Diagnosis(names, len(tried), len(constraints), refusal)


def _ask(http: adapter.Adapter, string: str, request: Request) -> tuple[bool, str | None]:
    """True if there is a candidate, or else the reason that Placement gives."""
    headers = {'X-Openstack-Request-Id': request.trace_id} if request.trace_id else {}
    try:
        response = http.request(
            f'/allocation_candidates?{string}',
            'GET',
            headers=headers,
            microversion=MICROVERSION,
            raise_exc=False,
            timeout=DIAGNOSIS_TIMEOUT_S,
        )
    except ks_exc.ClientException as error:
        raise PlacementUnavailable(hide(error)) from None
    answer = Response(response.status_code, response.content, response.reason or '')
    if answer.status_code == 400:
        return False, one_line(answer.detail).removeprefix(BAD_REQUEST_PREFIX)
    return bool(answer.decode(_Candidates).allocation_requests), None


def _describe(
    relaxed: query.RelaxedQuery, zone: str | None, aggregates: Sequence[Aggregate]
) -> str:
    """The constraint that a query leaves out, in the words of those who set it."""
    kind, value = relaxed.kind, relaxed.value
    if kind == 'resource':
        name, _, amount = value.partition(':')
        text = f'{amount} {name}'
    elif value == f'!{os_traits.COMPUTE_STATUS_DISABLED}':
        text = 'leaving out disabled hosts'
    elif kind == 'trait' and value.startswith('!'):
        text = f'forbidding trait {value[1:]}'
    elif kind == 'aggregates':
        text = _describe_aggregates(value, zone, aggregates)
    elif kind == 'host':
        text = f'the one host {value}'
    else:
        text = f'{kind} {value}'
    return one_line(f'{text} (group {relaxed.group})' if relaxed.group else text)


def _describe_aggregates(value: str, zone: str | None, aggregates: Sequence[Aggregate]) -> str:
    forbidden = value.startswith('!')
    members = value.removeprefix('!').removeprefix('in:').split(',')
    in_zone = {each.uuid for each in aggregates if each.metadata.get(AVAILABILITY_ZONE) == zone}
    if zone and in_zone == {*members} and not forbidden:
        return f'availability zone {zone}'
    names = {each.uuid: each.name for each in aggregates}
    known = ', '.join(sorted(names.get(each) or each for each in members))
    return f'{"staying out of " if forbidden else ""}aggregate {known}'
