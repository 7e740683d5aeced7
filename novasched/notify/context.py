# SPDX-License-Identifier: Apache-2.0
"""The caller's context in a notification, without what is secret."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

ALIKE = (
    'user_id', 'project_id', 'user_name', 'project_name', 'system_scope', 'is_admin_project',
    'read_only', 'show_deleted', 'resource_uuid', 'roles', 'request_id', 'global_request_id',
    'remote_address', 'timestamp', 'service_catalog', 'quota_class',
)  # fmt: skip
"""What an object's insides name as the context on the wire does."""

OTHERWISE = {
    'domain_id': 'domain', 'user_domain_id': 'user_domain', 'project_domain_id': 'project_domain',
    '_is_admin': 'is_admin', '_read_deleted': 'read_deleted',
}  # fmt: skip
UNKNOWN = (
    'domain_name', 'user_domain_name', 'project_domain_name', 'service_user_id',
    'service_user_name', 'service_user_domain_id', 'service_user_domain_name',
    'service_project_id', 'service_project_name', 'service_project_domain_id',
    'service_project_domain_name', 'db_connection', 'mq_connection', 'cell_uuid',
    'user_auth_plugin',
)  # fmt: skip
SECRET = ('auth_token', 'service_token')


def on_wire(context: Mapping[str, Any], now: datetime) -> dict[str, Any]:
    """The context of a message from nova: what oslo.context says, and what nova adds to it.

    What might be secret stays behind, as it does there: the token, where the user is, and
    the catalog. The time is that of the message.
    """
    return {
        **context,
        'auth_token': None,
        'user_id': context.get('user'),
        'read_deleted': 'no',
        'remote_address': None,
        'timestamp': now.isoformat(timespec='microseconds'),
        'quota_class': None,
        'user_name': context.get('user_name'),
        'service_catalog': [],
        'project_name': context.get('project_name'),
    }


def insides(wire: Mapping[str, Any]) -> dict[str, Any]:
    """The context on the wire as an object of nova's that holds it becomes JSON.

    There, and only there, nova tells the user's token to all who listen. Not here.
    """
    return {
        **{name: wire.get(name) for name in ALIKE},
        **{name: wire.get(other) for name, other in OTHERWISE.items()},
        **dict.fromkeys((*UNKNOWN, *SECRET)),
        'service_roles': [],
    }
