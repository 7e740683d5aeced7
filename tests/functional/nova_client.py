# SPDX-License-Identifier: Apache-2.0
"""nova's own scheduler client as a child process. Runs in nova's virtualenv, as a script.

One JSON object a line: {"number", "command", "parameters"} comes in, {"number", "answer"} or
{"number", "error"} goes out. The only argument is the configuration file.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from concurrent import futures
from types import SimpleNamespace
from typing import Any

import oslo_messaging as messaging
from nova import baserpc, config, context, exception, objects, rpc, servicegroup
from nova.objects import base as objects_base
from nova.scheduler import rpcapi
from nova.virt import hardware
from oslo_log import log as logging
from oslo_utils import uuidutils

Parameters = dict[str, Any]


class Client:
    """The commands; each takes JSON values and returns one."""

    def __init__(self) -> None:
        self._apis: dict[str, rpcapi.SchedulerAPI] = {}

    def select_destinations(self, parameters: Parameters) -> Any:
        """Ask as the conductor of the given RPC version does."""
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

    def together(self, parameters: Parameters) -> list[Parameters]:
        """Several commands at once, from so many threads; what comes of each, in order."""
        with futures.ThreadPoolExecutor(parameters['threads']) as pool:
            return list(pool.map(lambda request: answer(self, request), parameters['requests']))

    def land(self, parameters: Parameters) -> Any:
        """Fit servers on the NUMA cells of a host as its nova-compute does when they come."""
        host = objects.NUMATopology.obj_from_db_obj(parameters['numa_topology'])
        flavor = objects.Flavor(**parameters['flavor'])
        pins = []
        for _ in range(parameters['count']):
            guest = hardware.numa_get_constraints(flavor, image_meta({}))
            fitted = hardware.numa_fit_instance_to_host(host, guest, {})
            if fitted is None:
                raise exception.ComputeResourcesUnavailable(reason='no NUMA cell fits')
            host = hardware.numa_usage_from_instance_numa(host, fitted)
            pins.append(sorted(cpu for cell in fitted.cells for cpu in cell.cpu_pinning.values()))
        return pins, host._to_json()

    def update_instance_info(self, parameters: Parameters) -> None:
        """The cast of a compute whose server is new or changed."""
        instances = [objects.Instance(**values) for values in parameters['instances']]
        self._api().update_instance_info(
            admin(), parameters['host'], objects.InstanceList(objects=instances)
        )

    def delete_instance_info(self, parameters: Parameters) -> None:
        """The cast of a compute whose server is gone."""
        self._api().delete_instance_info(admin(), parameters['host'], parameters['instance_uuid'])

    def sync_instance_info(self, parameters: Parameters) -> None:
        """The periodic cast of a compute: all the servers it has."""
        self._api().sync_instance_info(admin(), parameters['host'], parameters['instance_uuids'])

    def update_aggregates(self, parameters: Parameters) -> None:
        """The API's cast after a change: these aggregates, as the database has them."""
        found = objects.AggregateList.get_all(admin())
        chosen = [aggregate for aggregate in found if aggregate.uuid in parameters['uuids']]
        self._api().update_aggregates(admin(), objects.AggregateList(objects=chosen))

    def delete_aggregate(self, parameters: Parameters) -> None:
        """The API's cast after a deletion; it needs the aggregate that was."""
        aggregate = objects.Aggregate(**parameters['aggregate'])
        self._api().delete_aggregate(admin(), aggregate)

    def raw_call(self, parameters: Parameters) -> Any:
        """Call any method with arguments that go out as they are."""
        target = messaging.Target(
            topic=rpcapi.RPC_TOPIC,
            version=parameters['version'],
            namespace=parameters['namespace'],
        )
        client = messaging.get_rpc_client(
            rpc.TRANSPORT, target, serializer=rpc.RequestContextSerializer(None)
        )
        prepared = client.prepare(
            server=parameters['server'], timeout=parameters['timeout'], version=target.version
        )
        user = context.RequestContext(parameters['user_id'], parameters['project_id'])
        return prepared.call(user, parameters['method'], **parameters['arguments'])

    def ping(self, parameters: Parameters) -> Any:
        """The method that every nova service answers."""
        api = baserpc.BaseAPI(rpcapi.RPC_TOPIC)
        return api.ping(admin(), parameters['argument'], timeout=parameters['timeout'])

    def services(self, _parameters: Parameters) -> list[Parameters]:
        """The services of the main database, and whether nova takes them for up."""
        api = servicegroup.API()
        return [
            {
                'host': service.host,
                'binary': service.binary,
                'topic': service.topic,
                'version': service.version,
                'up': api.service_is_up(service),
            }
            for service in objects.ServiceList.get_all(admin())
        ]

    def report(self, parameters: Parameters) -> None:
        """One heartbeat of each of these computes, into memcached."""
        group = servicegroup.API()
        for host in parameters['hosts']:
            row = {'topic': 'compute', 'host': host}
            group._driver._report_state(SimpleNamespace(service_ref=row))

    def _api(self, version: str = '4.5') -> rpcapi.SchedulerAPI:
        """The client of a deployment that pins [upgrade_levels] scheduler to a version."""
        if version not in self._apis:
            rpcapi.CONF.set_override('scheduler', version, group='upgrade_levels')
            self._apis[version] = rpcapi.SchedulerAPI()
        return self._apis[version]


def admin() -> context.RequestContext:
    """Who the casts and the reading of the database come from."""
    return context.get_admin_context()


def request_spec(user: context.RequestContext, parameters: Parameters) -> objects.RequestSpec:
    """The request as nova's API and conductor put it together."""
    flavor = objects.Flavor(**parameters['flavor'])
    image = image_meta(parameters['image'])
    uuids = parameters['instance_uuids'] or []
    spec = objects.RequestSpec.from_components(
        user,
        uuids[0] if uuids else uuidutils.generate_uuid(),
        image,
        flavor,
        hardware.numa_get_constraints(flavor, image),
        objects.InstancePCIRequests(
            requests=[objects.InstancePCIRequest(**each) for each in parameters['devices']]
        ),
        {name: parameters[name] for name in FILTER_PROPERTIES if parameters[name]},
        instance_group(parameters['group']),
        parameters['availability_zone'],
        security_groups=objects.SecurityGroupList(objects=[objects.SecurityGroup(name='default')]),
    )
    spec.requested_networks = objects.NetworkRequestList(
        objects=[objects.NetworkRequest(network_id='none')]
    )
    spec.num_instances = parameters['num_instances'] or max(1, len(uuids))
    spec.is_bfv = parameters['is_bfv']
    if parameters['destination']:
        spec.requested_destination = destination(user, parameters['destination'])
    return spec


FILTER_PROPERTIES = ('ignore_hosts', 'force_hosts', 'force_nodes', 'scheduler_hints')


def image_meta(properties: Parameters) -> objects.ImageMeta:
    """An image of Glance with these properties."""
    return objects.ImageMeta.from_dict(
        {
            'id': uuidutils.generate_uuid(),
            'name': 'functional',
            'status': 'active',
            'disk_format': 'qcow2',
            'container_format': 'bare',
            'min_ram': 0,
            'min_disk': 0,
            'size': 1,
            'properties': properties,
        }
    )


def instance_group(values: Parameters | None) -> objects.InstanceGroup | None:
    """A server group with the members and hosts that the conductor has looked up."""
    if values is None:
        return None
    return objects.InstanceGroup(
        uuid=values['uuid'],
        name='functional',
        user_id='functional-user',
        project_id='functional-project',
        # Both forms of the policy, as an API that still serves old computes loads them.
        policies=[values['policy']],
        policy=values['policy'],
        rules=values['rules'],
        members=values['members'],
        hosts=values['hosts'],
    )


def destination(user: context.RequestContext, values: Parameters) -> objects.Destination:
    """Where the server is to go: fields of Destination, the cell by its UUID."""
    found: Parameters = {k: v for k, v in values.items() if k != 'cell'}
    if values.get('cell'):
        found['cell'] = objects.CellMapping.get_by_uuid(user.elevated(), values['cell'])
    return objects.Destination(**found)


def plain(found: Any) -> Any:
    """Selections as dicts of their fields; what an older version returns is plain already."""
    if isinstance(found, objects_base.NovaObject):
        return {
            name: plain(getattr(found, name)) if found.obj_attr_is_set(name) else None
            for name in found.fields
        }
    if isinstance(found, (list, tuple)):
        return [plain(one) for one in found]
    return found


def failure(error: Exception) -> Parameters:
    """What the conductor could know of an error: its class as the client has it."""
    return {
        'error': type(error).__name__,
        'module': type(error).__module__,
        'isinstance_NoValidHost': isinstance(error, exception.NoValidHost),
        'message': str(error),
        'exc_type': getattr(error, 'exc_type', None),
        'value': str(getattr(error, 'value', '')),
    }


def answer(client: Client, request: Parameters) -> Parameters:
    """Run one command. Whatever the far side raises is the answer, not our end."""
    command: Callable[[Parameters], Any] = getattr(client, request['command'])
    try:
        return {'answer': command(request['parameters'])}
    except Exception as error:
        return {'error': failure(error)}


def main() -> None:
    """Serve standard input until it ends."""
    # Nothing but answers may reach the pipe that standard output was.
    answers = os.fdopen(os.dup(1), 'w', buffering=1)
    os.dup2(2, 1)
    config.parse_args(['functional-client', '--config-file', sys.argv[1]])
    logging.setup(config.CONF, 'nova')
    objects.register_all()
    client = Client()
    print(json.dumps({'number': 0, 'answer': 'ready'}), file=answers)
    for line in sys.stdin:
        request = json.loads(line)
        reply = {'number': request['number'], **answer(client, request)}
        print(json.dumps(reply), file=answers)


if __name__ == '__main__':
    main()
