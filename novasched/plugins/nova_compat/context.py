# SPDX-License-Identifier: Apache-2.0
"""The context of the caller, as plugins written for nova read it.

The context has the token of the user, with which a plugin may call other services. The
token is in no other text of this process: see
:func:`novasched.conf.redaction.secret_in_use`.
"""

import copy
from datetime import datetime
from importlib import import_module
from typing import Any

from keystoneauth1 import access, plugin
from oslo_context import context as oslo_context
from oslo_utils import timeutils

from novasched.plugins.nova_compat.import_stubs import install, stub_in
from novasched.scheduler.model.request import Request

ADMIN = 'admin'


def context_of(request: Request) -> Any:
    """The context of the caller, of nova's own class if nova is installed.

    A request that came with no message has the user and the project only.
    """
    values: dict[str, Any] = {
        'request_id': request.request_id,
        'global_request_id': request.global_request_id,
        'user_id': request.user_id,
        'project_id': request.project_id,
    }
    if request.origin is not None:
        values.update(request.origin.caller)
    # Releases before Queens send the user and project by other names.
    values['user_id'] = values['user_id'] or values.get('user')
    values['project_id'] = values['project_id'] or values.get('tenant')
    values['user'] = values['user_id']

    install()
    logging_context = oslo_context.get_current()
    context = import_module('nova.context').RequestContext.from_dict(values)
    # A new context replaces the logging context of this thread.
    if logging_context is not None:
        logging_context.update_store()
    return context


@stub_in('nova.context')
class RequestContext(oslo_context.RequestContext):
    """nova's RequestContext without policies: the methods of oslo.context, and the
    service catalog."""

    FROM_DICT_EXTRA_KEYS = [
        'read_deleted',
        'remote_address',
        'timestamp',
        'quota_class',
        'service_catalog',
    ]

    def __init__(
        self,
        user_id: str | None = None,
        project_id: str | None = None,
        is_admin: bool | None = None,
        read_deleted: str | None = None,
        remote_address: str | None = None,
        timestamp: datetime | str | None = None,
        quota_class: str | None = None,
        service_catalog: list[Any] | None = None,
        user_auth_plugin: Any = None,
        **values: Any,
    ) -> None:
        super().__init__(
            user_id=user_id, project_id=project_id, is_admin=is_admin, **values
        )
        self.read_deleted = read_deleted or 'no'
        self.remote_address = remote_address
        self.timestamp = _moment(timestamp)
        self.quota_class = quota_class
        self.service_catalog = service_catalog or []
        self.user_auth_plugin = user_auth_plugin

    def to_dict(self) -> dict[str, Any]:
        """The values of the context, with the token."""
        return {
            **super().to_dict(),
            'user_id': self.user_id,
            'user_name': self.user_name,
            'project_name': self.project_name,
            'read_deleted': self.read_deleted,
            'remote_address': self.remote_address,
            'timestamp': self.timestamp.isoformat(),
            'quota_class': self.quota_class,
            'service_catalog': self.service_catalog,
        }

    def get_logging_values(self) -> dict[str, Any]:
        values = super().get_logging_values()
        del values['service_catalog']
        return values

    def check_is_admin(self) -> bool:
        """nova's default policy ``context_is_admin``."""
        return ADMIN in map(str.lower, self.roles)

    def to_policy_values(self) -> Any:
        values = super().to_policy_values()
        values['is_admin'] = self.is_admin
        return values

    def elevated(self, read_deleted: str | None = None) -> 'RequestContext':
        """A copy of the context with the rights of an administrator in nova."""
        elevated = copy.copy(self)
        elevated.is_admin = True
        if ADMIN not in self.roles:
            elevated.roles = [*self.roles, ADMIN]
        if read_deleted is not None:
            elevated.read_deleted = read_deleted
        return elevated

    def get_auth_plugin(self) -> Any:
        """A plugin of keystoneauth that calls other services as the user."""
        return self.user_auth_plugin or CallerAuth(self)


class CallerAuth(plugin.BaseAuthPlugin):
    """Authenticates with the token of the caller. Endpoints are the endpoints of the
    caller's service catalog."""

    def __init__(self, context: RequestContext) -> None:
        super().__init__()
        self._token = context.auth_token
        self._catalog = access.service_catalog.ServiceCatalogV2(context.service_catalog)

    def get_token(self, session: Any) -> str | None:
        """The token of the caller."""
        return self._token

    def get_endpoint(
        self,
        session: Any,
        service_type: str | None = None,
        interface: str | None = None,
        region_name: str | None = None,
        service_name: str | None = None,
        **_: Any,
    ) -> str | None:
        """The URL of a service.

        :raises EndpointNotFound: the catalog has no such service.
        """
        url: str | None = self._catalog.url_for(
            service_type=service_type,
            service_name=service_name,
            interface=interface,
            region_name=region_name,
        )
        return url


@stub_in('nova.context')
def get_admin_context(read_deleted: str = 'no') -> RequestContext:
    """The context of the scheduler itself, without a user and a token."""
    return RequestContext(is_admin=True, read_deleted=read_deleted, overwrite=False)


def _moment(timestamp: datetime | str | None) -> datetime:
    """The time of a request in UTC. A time that cannot be read is now."""
    if isinstance(timestamp, datetime):
        return timestamp
    try:
        return timeutils.normalize_time(timeutils.parse_isotime(timestamp or ''))
    except ValueError:
        return timeutils.utcnow()
