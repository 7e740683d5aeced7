# SPDX-License-Identifier: Apache-2.0
"""Asks Placement why it offers nothing: again, with one constraint less each time.

It does so by itself: with connections of its own, and without the rules by which requests
ask. It runs after they have been answered.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import os_traits
from keystoneauth1 import adapter
from keystoneauth1 import exceptions as ks_exc

from novasched.errors import NovaschedError, PlacementUnavailable
from novasched.model.host import AVAILABILITY_ZONE, Aggregate
from novasched.model.request import Request
from novasched.model.settings import Settings
from novasched.placement import query, relaxing
from novasched.placement.api import MICROVERSION, Answer, detail
from novasched.prefilters import Aggregates
from novasched.records.reasons import told
from novasched.records.record import Inquiry
from novasched.secrets import hide

PATIENCE = 30.0
"""Seconds for which an answer is waited for."""


STOCK = (
    'The server could not comply with the request since it is either malformed or otherwise '
    'incorrect. '
)
"""What every refusal of a query begins with, before it says why."""


class _Candidates(msgspec.Struct):
    allocation_requests: list[msgspec.Raw]


class Inquirer:
    """Finds the constraints without any one of which there is a candidate."""

    def __init__(self, settings: Settings, http: adapter.Adapter, aggregates: Aggregates) -> None:
        self.settings = settings
        self._http = http
        self._aggregates = aggregates

    def __call__(self, request: Request) -> Inquiry:
        """What Placement says.

        :raises NovaschedError: it does not.
        """
        string = query.build(request, self.settings).string
        offered, refusal = self._ask(relaxing.whole(string), request)
        if offered:
            return Inquiry(passing=True)
        every = relaxing.relaxed(string)
        tried = every[: self.settings.decisions_questions]
        found = [each for each in tried if self._ask(each.string, request)[0]]
        words = Words(request, self._known(found, request))
        return Inquiry(tuple(map(words, found)), len(tried), len(every), refusal)

    def _ask(self, string: str, request: Request) -> tuple[bool, str | None]:
        """Whether there is a candidate, or else what Placement has against the query."""
        headers = {'X-Openstack-Request-Id': request.trace_id} if request.trace_id else {}
        try:
            response = self._http.request(
                f'/allocation_candidates?{string}',
                'GET',
                headers=headers,
                microversion=MICROVERSION,
                raise_exc=False,
                timeout=PATIENCE,
            )
        except ks_exc.ClientException as error:
            raise PlacementUnavailable(hide(error)) from None
        if response.status_code == 400:
            answer = Answer(response.status_code, response.content, response.reason or '')
            return False, told(detail(answer)).removeprefix(STOCK)
        if response.status_code != 200:
            raise PlacementUnavailable(f'Placement answers {response.status_code}')
        return _is_offer(response), None

    def _known(self, found: Sequence[relaxing.Relaxed], request: Request) -> Sequence[Aggregate]:
        """The aggregates, if any is to be named."""
        if all(each.kind != 'aggregates' for each in found):
            return ()
        try:
            return self._aggregates.all(request.arrived)
        except NovaschedError:
            return ()


class Words:
    """A constraint in the words of those who set it."""

    def __init__(self, request: Request, aggregates: Sequence[Aggregate]) -> None:
        self._zone = request.availability_zone
        self._names = {each.uuid: each.name for each in aggregates}
        self._in_zone = {
            each.uuid for each in aggregates if each.metadata.get(AVAILABILITY_ZONE) == self._zone
        }

    def __call__(self, what: relaxing.Relaxed) -> str:
        """One constraint."""
        return told(f'{self._named(what)}{f" (group {what.group})" if what.group else ""}')

    def _named(self, what: relaxing.Relaxed) -> str:
        if what.kind == 'resource':
            name, _, amount = what.value.partition(':')
            return f'{amount} {name}'
        if what.value == f'!{os_traits.COMPUTE_STATUS_DISABLED}':
            return 'leaving out disabled hosts'
        if what.kind == 'trait':
            without = what.value.startswith('!')
            return f'forbidding trait {what.value[1:]}' if without else f'trait {what.value}'
        if what.kind == 'aggregates':
            return self._group(what.value)
        if what.kind == 'host':
            return f'the one host {what.value}'
        return f'{what.kind} {what.value}'

    def _group(self, value: str) -> str:
        members = value.removeprefix('!').removeprefix('in:').split(',')
        if self._zone and self._in_zone == {*members} and not value.startswith('!'):
            return f'availability zone {self._zone}'
        names = ', '.join(sorted(self._names.get(each) or each for each in members))
        return f'{"staying out of " if value.startswith("!") else ""}aggregate {names}'


def _is_offer(response: Any) -> bool:
    try:
        return bool(msgspec.json.decode(response.content, type=_Candidates).allocation_requests)
    except ValueError as error:
        raise PlacementUnavailable(f'Placement sent no candidates: {error}') from None
