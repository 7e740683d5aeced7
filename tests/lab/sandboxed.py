# SPDX-License-Identifier: Apache-2.0
"""Actions of operators in a sandbox."""

from datetime import timedelta

import os_traits
import sqlalchemy as sa
from oslo_utils import timeutils

from novasched.tools.sandbox import databases as tables
from novasched.tools.sandbox.computes import COMPUTE, flavor_columns


def offer(cloud, flavor):
    """Write a flavor, as ``openstack flavor create`` does."""
    row = {**flavor_columns(flavor), 'disabled': False, 'is_public': True}
    with cloud.databases.api.begin() as connection:
        connection.execute(sa.insert(tables.flavors), row)
        for key, value in flavor.extra_specs.items():
            spec = {'flavor_id': row['id'], 'key': key, 'value': value}
            connection.execute(sa.insert(tables.flavor_extra_specs), spec)


def disable(cloud, name, synced=True):
    """Disable the service of a host.

    :param synced: nova-compute sets the trait of disabled hosts in Placement.
    """
    _set_service(cloud, name, disabled=True, disabled_reason='maintenance')
    if synced:
        traits = [os_traits.OWNER_NOVA, os_traits.COMPUTE_STATUS_DISABLED]
        cloud.placement.put(cloud.computes.machines[name].uuid, traits=traits)


def silence(cloud, name):
    """Let nova-compute be silent since yesterday."""
    cloud.computes.silent.add(name)
    _set_service(cloud, name, last_seen_up=timeutils.utcnow() - timedelta(days=1))


def _set_service(cloud, name, **values):
    table = tables.services
    statement = sa.update(table).where(table.c.host == name, table.c.binary == COMPUTE)
    engine = cloud.databases.cells[cloud.computes.machines[name].cell]
    with engine.begin() as connection:
        connection.execute(statement.values(values))
