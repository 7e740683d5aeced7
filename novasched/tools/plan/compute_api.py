# SPDX-License-Identifier: Apache-2.0
"""nova's API, as far as the moves of a plan need it, by openstacksdk."""

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from enum import Enum, auto
from typing import Any

import openstack
from keystoneauth1.exceptions import ClientException
from openstack.connection import Connection
from openstack.exceptions import (
    NotFoundException,
    SDKException,
    raise_from_response,
)

from novasched.conf.errors import NovaschedError
from novasched.conf.redaction import printable
from novasched.tools.plan.plan_file import PlannedMove
from novasched.tools.plan.servers import MICROVERSIONS, Kind

LOG = logging.getLogger(__name__)
CONFIRMATION = 'VERIFY_RESIZE'
"""The status of a server after a cold migration, until the confirmation."""
ERROR = 'ERROR'


class ApiError(NovaschedError):
    """For the operator: nova's API refuses a request, or does not answer."""


class Phase(Enum):
    """How far nova has come with a move."""

    UNDER_WAY = auto()
    TO_CONFIRM = auto()
    """nova waits for the confirmation of a cold migration."""
    DONE = auto()
    FAILED = auto()


ACTIONS: Mapping[Kind, tuple[str, Mapping[str, object]]] = {
    Kind.LIVE: ('os-migrateLive', {'block_migration': 'auto'}),
    Kind.COLD: ('migrate', {}),
    Kind.EVACUATION: ('evacuate', {}),
}
"""The action of the API for each kind of moves, and its arguments beside the host."""


class ComputeApi:
    """Moves servers by nova's API."""

    def __init__(self, connection: Connection) -> None:
        self._compute = connection.compute

    @classmethod
    def of_cloud(cls, name: str | None) -> 'ComputeApi':
        """The API of a cloud of clouds.yaml, or of the environment (``OS_*``).

        :param name: the name in clouds.yaml; None for ``OS_CLOUD``.
        :raises ApiError: the cloud is unknown, or refuses the credentials.
        """
        with _errors():
            return cls(openstack.connect(cloud=name))

    @property
    def url(self) -> str:
        """The URL of the API.

        :raises ApiError: Keystone does not tell the URL.
        """
        with _errors():
            return printable(str(self._compute.get_endpoint()))

    def begin(self, move: PlannedMove) -> None:
        """Begin a move.

        :raises ApiError: nova refuses the move, or does not answer.
        """
        name, arguments = ACTIONS[move.kind]
        self._act(move, name, {**arguments, 'host': move.host})

    def confirm(self, move: PlannedMove) -> None:
        """Confirm a cold migration, so that nova frees the old host.

        :raises ApiError: nova refuses the confirmation, or does not answer.
        """
        self._act(move, 'confirmResize', None)

    def phase(self, move: PlannedMove) -> Phase:
        """How far nova has come with a move that has begun.

        :raises ApiError: nova does not answer.
        """
        with _errors():
            try:
                server = self._compute.get_server(move.server)
            except NotFoundException:
                return Phase.FAILED
        if server.task_state is not None:
            return Phase.UNDER_WAY
        if server.status == ERROR or server.compute_host != move.host:
            return Phase.FAILED
        # After a user's own resize, the flavor is another one.
        is_move = printable(server.flavor.original_name or '') == move.flavor
        if server.status == CONFIRMATION and is_move:
            return Phase.TO_CONFIRM
        return Phase.DONE

    def why_failed(self, move: PlannedMove) -> str:
        """What nova says about the latest action on a server, in a line."""
        try:
            with _errors():
                actions = self._compute.server_actions(move.server)
                latest = next(iter(actions))
                found = self._compute.get_server_action(latest.request_id, move.server)
            for event in found.events or ():
                if event.result == 'Error' and event.details:
                    return printable(event.details)
        except (ApiError, StopIteration):
            LOG.debug('No action on server %s is known', move.server, exc_info=True)
        return f'see "openstack server event list {move.server}"'

    def _act(
        self, move: PlannedMove, name: str, arguments: Mapping[str, object] | None
    ) -> None:
        path = f'/servers/{move.server}/action'
        version = MICROVERSIONS[move.kind]
        with _errors():
            answer = self._compute.post(
                path, json={name: arguments}, microversion=version
            )
            raise_from_response(answer)


@contextmanager
def _errors() -> Iterator[None]:
    """Raise the errors of openstacksdk as :class:`ApiError`."""
    try:
        yield
    except (SDKException, ClientException) as error:
        text: Any = getattr(error, 'details', None) or error
        raise ApiError(printable(f'nova-api: {text}')) from error
