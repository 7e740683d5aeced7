# SPDX-License-Identifier: Apache-2.0
"""nova's scheduler client as a child process: a script for nova's virtualenv, see
nova_child.py."""

from __future__ import annotations

from concurrent import futures
from types import SimpleNamespace

import oslo_messaging as messaging
from nova import baserpc, context, exception, objects, rpc, servicegroup
from nova.objects import base as objects_base
from nova.scheduler import rpcapi
from nova.virt import hardware
from nova_child import answer, serve
from nova_values import PROJECT, USER, image_meta
from oslo_utils import uuidutils


class Client:
    """The commands of the child, with JSON values as arguments and results."""

    def __init__(self):
        self._apis: dict[str, rpcapi.SchedulerAPI] = {}

    def select_destinations(self, **parameters):
        user = context.RequestContext(parameters['user_id'], parameters['project_id'])
        spec = request_spec(user, parameters)
        version = parameters['version']
        options = {}
        if version == '4.5':
            options['return_objects'] = parameters['return_objects']
            options['return_alternates'] = parameters['return_alternates']
        selections = self._api(version).select_destinations(
            user, spec, parameters['instance_uuids'], **options
        )
        return plain(selections)

    def together(self, threads, requests):
        """Run commands from several threads at once; the replies in the order of the
        commands."""
        with futures.ThreadPoolExecutor(threads) as pool:
            return list(pool.map(lambda request: answer(self, request), requests))

    def land(self, numa_topology, flavor, count):
        """Fit servers on the NUMA cells of a host, as nova-compute does when a server
        arrives."""
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
            cpus = []
            for cell in fitted.cells:
                cpus += cell.cpu_pinning.values()
            pins.append(sorted(cpus))
        return pins, host._to_json()

    def update_instance_info(self, host, instances):
        """Cast new or changed servers, as nova-compute does."""
        servers = [objects.Instance(**values) for values in instances]
        server_list = objects.InstanceList(objects=servers)
        self._api().update_instance_info(admin(), host, server_list)

    def delete_instance_info(self, host, instance_uuid):
        """Cast a deleted server, as nova-compute does."""
        self._api().delete_instance_info(admin(), host, instance_uuid)

    def sync_instance_info(self, host, instance_uuids):
        """Cast all servers of a host, as nova-compute does from time to time."""
        self._api().sync_instance_info(admin(), host, instance_uuids)

    def update_aggregates(self, uuids):
        """Cast changed aggregates from the database, as nova-api does."""
        aggregates = objects.AggregateList.get_all(admin())
        changed = [aggregate for aggregate in aggregates if aggregate.uuid in uuids]
        self._api().update_aggregates(admin(), objects.AggregateList(objects=changed))

    def delete_aggregate(self, **fields):
        """Cast a deleted aggregate, as nova-api does."""
        self._api().delete_aggregate(admin(), objects.Aggregate(**fields))

    def raw_call(self, method, arguments, version, namespace, **options):
        """Call a method with arguments that are sent as they are."""
        target = messaging.Target(
            topic=rpcapi.RPC_TOPIC, version=version, namespace=namespace
        )
        client = messaging.get_rpc_client(
            rpc.TRANSPORT, target, serializer=rpc.RequestContextSerializer(None)
        )
        prepared = client.prepare(version=version, **options)
        return prepared.call(context.RequestContext(USER, PROJECT), method, **arguments)

    def ping(self, argument, timeout):
        api = baserpc.BaseAPI(rpcapi.RPC_TOPIC)
        return api.ping(admin(), argument, timeout=timeout)

    def services(self):
        """The services of the main database, with nova's verdict that a service is up."""
        api = servicegroup.API()
        services = []
        for service in objects.ServiceList.get_all(admin()):
            values = {
                'host': service.host,
                'binary': service.binary,
                'topic': service.topic,
                'version': service.version,
                'up': api.service_is_up(service),
            }
            services.append(values)
        return services

    def report(self, hosts):
        """Write a heartbeat of each compute into memcached."""
        group = servicegroup.API()
        for host in hosts:
            row = {'topic': 'compute', 'host': host}
            group._driver._report_state(SimpleNamespace(service_ref=row))

    def _api(self, version='4.5'):
        """The client of a deployment that pins ``[upgrade_levels] scheduler``."""
        if version not in self._apis:
            rpcapi.CONF.set_override('scheduler', version, group='upgrade_levels')
            self._apis[version] = rpcapi.SchedulerAPI()
        return self._apis[version]


def admin():
    return context.get_admin_context()


def request_spec(user, parameters):
    """The request spec that nova-api and nova-conductor make."""
    flavor = objects.Flavor(**parameters['flavor'])
    image = image_meta(parameters['image'])
    uuids = parameters['instance_uuids'] or []
    instance_uuid = uuidutils.generate_uuid()
    if uuids:
        instance_uuid = uuids[0]
    devices = [objects.InstancePCIRequest(**fields) for fields in parameters['devices']]
    parameters['scheduler_hints'] = parameters['hints']
    filter_properties = {}
    for name in FILTER_PROPERTIES:
        if parameters[name]:
            filter_properties[name] = parameters[name]
    security_groups = [objects.SecurityGroup(name='default')]
    networks = [objects.NetworkRequest(network_id='none')]

    spec = objects.RequestSpec.from_components(
        user,
        instance_uuid,
        image,
        flavor,
        hardware.numa_get_constraints(flavor, image),
        objects.InstancePCIRequests(requests=devices),
        filter_properties,
        instance_group(parameters['group']),
        parameters['zone'],
        security_groups=objects.SecurityGroupList(objects=security_groups),
    )
    spec.requested_networks = objects.NetworkRequestList(objects=networks)
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


def instance_group(values):
    """A server group with members and hosts; None without values."""
    if values is None:
        return None
    # Both forms of the policy, which nova-api loads for old computes.
    return objects.InstanceGroup(
        name='functional',
        user_id=USER,
        project_id=PROJECT,
        policies=[values['policy']],
        **values,
    )


def destination(user, values):
    """A requested destination.

    :param values: fields of Destination, with the UUID of the cell.
    """
    fields = dict(values)
    cell = fields.pop('cell', None)
    if cell:
        fields['cell'] = objects.CellMapping.get_by_uuid(user.elevated(), cell)
    return objects.Destination(**fields)


def plain(value):
    """Selections as dicts of their fields. Older versions return plain values."""
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if not isinstance(value, objects_base.NovaObject):
        return value

    fields = {}
    for name in value.fields:
        fields[name] = None
        if value.obj_attr_is_set(name):
            fields[name] = plain(getattr(value, name))
    return fields


if __name__ == '__main__':
    serve(Client)
