# SPDX-License-Identifier: Apache-2.0
"""nova's own scheduler client as a child process. Runs in nova's virtualenv, as a
script; see nova_child.py."""

from __future__ import annotations

from concurrent import futures
from types import SimpleNamespace

import oslo_messaging as messaging
from nova import baserpc, context, exception, objects, rpc, servicegroup
from nova.objects import base as objects_base
from nova.scheduler import rpcapi
from nova.virt import hardware
from nova_child import answer, serve
from oslo_utils import uuidutils

USER = 'functional-user'
PROJECT = 'functional-project'


class Client:
    """The commands; each takes JSON values and returns one."""

    def __init__(self):
        self._apis: dict[str, rpcapi.SchedulerAPI] = {}

    def select_destinations(self, **parameters):
        user = context.RequestContext(parameters['user_id'], parameters['project_id'])
        spec = request_spec(user, parameters)
        version = parameters['version']
        objects_too = {
            'return_objects': parameters['return_objects'],
            'return_alternates': parameters['return_alternates'],
        }
        found = self._api(version).select_destinations(
            user,
            spec,
            parameters['instance_uuids'],
            **(objects_too if version == '4.5' else {}),
        )
        return plain(found)

    def together(self, threads, requests):
        """Several commands at once, from so many threads; what comes of each, in
        order."""
        with futures.ThreadPoolExecutor(threads) as pool:
            return list(pool.map(lambda request: answer(self, request), requests))

    def land(self, numa_topology, flavor, count):
        """Fit servers on the NUMA cells of a host as its nova-compute does when they
        come."""
        host = objects.NUMATopology.obj_from_db_obj(numa_topology)
        pins = []
        for _ in range(count):
            guest = hardware.numa_get_constraints(
                objects.Flavor(**flavor), image_meta({})
            )
            fitted = hardware.numa_fit_instance_to_host(host, guest, {})
            if fitted is None:
                raise exception.ComputeResourcesUnavailable(reason='no NUMA cell fits')
            host = hardware.numa_usage_from_instance_numa(host, fitted)
            pins.append(
                sorted(
                    cpu for cell in fitted.cells for cpu in cell.cpu_pinning.values()
                )
            )
        return pins, host._to_json()

    def update_instance_info(self, host, instances):
        """The cast of a compute whose server is new or changed."""
        found = [objects.Instance(**values) for values in instances]
        self._api().update_instance_info(
            admin(), host, objects.InstanceList(objects=found)
        )

    def delete_instance_info(self, host, instance_uuid):
        """The cast of a compute whose server is gone."""
        self._api().delete_instance_info(admin(), host, instance_uuid)

    def sync_instance_info(self, host, instance_uuids):
        """The periodic cast of a compute: all the servers it has."""
        self._api().sync_instance_info(admin(), host, instance_uuids)

    def update_aggregates(self, uuids):
        """The API's cast after a change: these aggregates, as the database has them."""
        found = objects.AggregateList.get_all(admin())
        chosen = [aggregate for aggregate in found if aggregate.uuid in uuids]
        self._api().update_aggregates(admin(), objects.AggregateList(objects=chosen))

    def delete_aggregate(self, **fields):
        """The API's cast after a deletion; it needs the aggregate that was."""
        self._api().delete_aggregate(admin(), objects.Aggregate(**fields))

    def raw_call(self, method, arguments, version, namespace, **how):
        target = messaging.Target(
            topic=rpcapi.RPC_TOPIC, version=version, namespace=namespace
        )
        client = messaging.get_rpc_client(
            rpc.TRANSPORT, target, serializer=rpc.RequestContextSerializer(None)
        )
        prepared = client.prepare(version=version, **how)
        return prepared.call(context.RequestContext(USER, PROJECT), method, **arguments)

    def ping(self, argument, timeout):
        api = baserpc.BaseAPI(rpcapi.RPC_TOPIC)
        return api.ping(admin(), argument, timeout=timeout)

    def services(self):
        """The services of the main database, and whether nova takes them for up."""
        api = servicegroup.API()
        names = ('host', 'binary', 'topic', 'version')
        return [
            {
                **{name: getattr(each, name) for name in names},
                'up': api.service_is_up(each),
            }
            for each in objects.ServiceList.get_all(admin())
        ]

    def report(self, hosts):
        """One heartbeat of each of these computes, into memcached."""
        group = servicegroup.API()
        for host in hosts:
            row = {'topic': 'compute', 'host': host}
            group._driver._report_state(SimpleNamespace(service_ref=row))

    def _api(self, version='4.5'):
        """The client of a deployment that pins [upgrade_levels] scheduler to a
        version."""
        if version not in self._apis:
            rpcapi.CONF.set_override('scheduler', version, group='upgrade_levels')
            self._apis[version] = rpcapi.SchedulerAPI()
        return self._apis[version]


def admin():
    return context.get_admin_context()


def request_spec(user, parameters):
    """The request as nova's API and conductor put it together."""
    flavor = objects.Flavor(**parameters['flavor'])
    image = image_meta(parameters['image'])
    uuids = parameters['instance_uuids'] or []
    parameters['scheduler_hints'] = parameters['hints']
    spec = objects.RequestSpec.from_components(
        user,
        uuids[0] if uuids else uuidutils.generate_uuid(),
        image,
        flavor,
        hardware.numa_get_constraints(flavor, image),
        objects.InstancePCIRequests(
            requests=[
                objects.InstancePCIRequest(**each) for each in parameters['devices']
            ]
        ),
        {name: parameters[name] for name in FILTER_PROPERTIES if parameters[name]},
        instance_group(parameters['group']),
        parameters['zone'],
        security_groups=objects.SecurityGroupList(
            objects=[objects.SecurityGroup(name='default')]
        ),
    )
    spec.requested_networks = objects.NetworkRequestList(
        objects=[objects.NetworkRequest(network_id='none')]
    )
    spec.num_instances = parameters['num_instances'] or max(1, len(uuids))
    spec.is_bfv = parameters['is_bfv']
    if parameters['destination']:
        spec.requested_destination = destination(user, parameters['destination'])
    return spec


FILTER_PROPERTIES = (
    'ignore_hosts',
    'force_hosts',
    'force_nodes',
    'retry',
    'scheduler_hints',
)


def image_meta(properties):
    return objects.ImageMeta.from_dict({
        'id': uuidutils.generate_uuid(), 'name': 'functional', 'status': 'active',
        'disk_format': 'qcow2', 'container_format': 'bare', 'min_ram': 0, 'min_disk': 0,
        'size': 1, 'properties': properties,
    })  # fmt: skip


def instance_group(values):
    """A server group with the members and hosts that the conductor has looked up."""
    if values is None:
        return None
    # Both forms of the policy, as an API that still serves old computes loads them.
    return objects.InstanceGroup(
        name='functional',
        user_id=USER,
        project_id=PROJECT,
        policies=[values['policy']],
        **values,
    )


def destination(user, values):
    """Where the server is to go: fields of Destination, the cell by its UUID."""
    found = {k: v for k, v in values.items() if k != 'cell'}
    if values.get('cell'):
        found['cell'] = objects.CellMapping.get_by_uuid(user.elevated(), values['cell'])
    return objects.Destination(**found)


def plain(found):
    """Selections as dicts of their fields; what an older version returns is plain
    already."""
    if isinstance(found, objects_base.NovaObject):
        return {
            name: plain(getattr(found, name)) if found.obj_attr_is_set(name) else None
            for name in found.fields
        }
    if isinstance(found, (list, tuple)):
        return [plain(one) for one in found]
    return found


if __name__ == '__main__':
    serve(Client)
