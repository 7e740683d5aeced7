# SPDX-License-Identifier: Apache-2.0
"""A child process with nova's prefilters that search the metadata of aggregates. The
script runs in nova's virtualenv; commands and answers are lines as in
tests/lab/nova_child.py."""

from nova import context, objects
from nova.conf import CONF
from nova.db import migration
from nova.db.api import api as api_database
from nova.scheduler import request_filter
from nova_child import serve

PREFILTERS = {
    'project': request_filter.require_tenant_aggregate,
    'zone': request_filter.map_az_to_placement_aggregate,
    'traits': request_filter.isolate_aggregates,
}


class Prefilters:
    def __init__(self):
        CONF.set_override('limit_tenants_to_placement_aggregate', True, 'scheduler')
        CONF.set_override('enable_isolated_aggregate_filtering', True, 'scheduler')
        api_database.configure(CONF)

    def migrate(self):
        """Create the tables of the API database, as nova-manage does."""
        migration.db_sync(database='api')

    def search(self, requests):
        """The UUIDs of the aggregates that each request must use or avoid, or the name
        of an error.

        :param requests: pairs of a kind of PREFILTERS and a value.
        """
        return [self._search(kind, value) for kind, value in requests]

    def _search(self, kind, value):
        values = {'project': 'p', 'zone': None, 'traits': [], kind: value}
        user = context.RequestContext('user', values['project'])
        extra_specs = {f'trait:{name}': 'required' for name in values['traits']}
        flavor = objects.Flavor(
            vcpus=1,
            memory_mb=1,
            root_gb=1,
            ephemeral_gb=0,
            swap=0,
            extra_specs=extra_specs,
        )
        spec = objects.RequestSpec(
            user,
            flavor=flavor,
            image=objects.ImageMeta(properties=objects.ImageMetaProps()),
            is_bfv=False,
            project_id=values['project'],
            availability_zone=values['zone'],
            requested_resources=[],
            request_level_params=objects.RequestLevelParams(),
            pci_requests=None,
            numa_topology=None,
            requested_destination=None,
        )
        try:
            PREFILTERS[kind](user, spec)
        except Exception as error:
            return type(error).__name__

        destination = spec.requested_destination
        if destination is None:
            return []
        if kind == 'traits':
            return sorted(destination.forbidden_aggregates)
        # Alternatives are joined with commas.
        return sorted(destination.aggregates[0].split(','))


if __name__ == '__main__':
    serve(Prefilters)
