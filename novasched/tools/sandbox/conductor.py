# SPDX-License-Identifier: Apache-2.0
"""The part of nova-conductor: makes the RequestSpec, calls the scheduler, and keeps the result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import oslo_messaging
from oslo_config import cfg
from oslo_context.context import RequestContext

from novasched.conf.errors import NovaschedError
from novasched.rpc import versions
from novasched.rpc import wire as objects
from novasched.rpc.serializer import Serializer
from novasched.rpc.server import TOPIC, make_transport
from novasched.scheduler.model.flavor import Flavor
from novasched.scheduler.model.request import InstanceGroup
from novasched.tools.sandbox.computes import flavor_columns

USER, PROJECT = 'sandbox-user', 'sandbox-project'


class NoAnswer(NovaschedError):
    """For whoever runs the sandbox: neither hosts nor a refusal came back."""


@dataclass(frozen=True, slots=True)
class Server:
    """An instance that got a host, with its alternates."""

    uuid: str
    flavor: Flavor
    selection: objects.Selection
    alternates: tuple[objects.Selection, ...] = ()

    @property
    def host(self) -> str:
        return str(self.selection.value('service_host'))

    @property
    def node_uuid(self) -> str:
        """The UUID of its compute node, which is also the resource provider's."""
        return str(self.selection.value('compute_node_uuid'))


@dataclass(frozen=True, slots=True)
class Boot:
    """One request for instances: either all are placed, or ``fault`` says why none is."""

    uuids: tuple[str, ...]
    flavor: Flavor
    seconds: float
    servers: tuple[Server, ...] = ()
    fault: str | None = None
    group_uuid: str | None = None


class Conductor:
    """Calls a scheduler over the transport of its configuration."""

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        self._transport = make_transport(conf)
        self._client = oslo_messaging.get_rpc_client(
            self._transport,
            oslo_messaging.Target(topic=TOPIC, version='4.0'),
            serializer=Serializer(),
            version_cap=versions.LATEST,
        )

    def close(self) -> None:
        self._transport.cleanup()

    def select_destinations(
        self, spec: objects.RequestSpec, uuids: Sequence[str]
    ) -> list[list[objects.Selection]]:
        """For each instance the host that was claimed for it, then its alternates.

        :raises novasched.rpc.faults.NoValidHostFault: not every instance gets a host
        :raises NoAnswer: the scheduler does not answer
        """
        client = self._client.prepare(version=versions.LATEST, timeout=60)
        try:
            chosen: list[list[objects.Selection]] = client.call(
                RequestContext(user_id=USER, project_id=PROJECT),
                'select_destinations',
                spec_obj=spec,
                instance_uuids=list(uuids),
                return_objects=True,
                return_alternates=True,
            )
        except oslo_messaging.MessagingException as error:
            raise NoAnswer(f'The scheduler does not answer: {error}') from error
        return chosen


def request_spec(
    uuids: Sequence[str],
    flavor: Flavor,
    zone: str | None = None,
    group: InstanceGroup | None = None,
    image_properties: Mapping[str, Any] | None = None,
    **fields: Any,
) -> objects.RequestSpec:
    """The RequestSpec of a build, as nova 34.0.0 sends it.

    :param fields: fields of the RequestSpec that are to have other values
    """
    plain: dict[str, Any] = {
        'id': 1,
        'image': objects.ImageMeta(
            min_ram=0,
            min_disk=0,
            properties=objects.ImageMetaProps.from_plain(image_properties or {}),
        ),
        'numa_topology': None,
        'pci_requests': None,
        'project_id': PROJECT,
        'user_id': USER,
        'availability_zone': zone,
        'flavor': objects.Flavor(**flavor_columns(flavor), extra_specs=dict(flavor.extra_specs)),
        'num_instances': len(uuids),
        'ignore_hosts': None,
        'force_hosts': None,
        'force_nodes': None,
        'requested_destination': None,
        'retry': None,
        'limits': objects.SchedulerLimits(),
        'instance_group': _group(group) if group else None,
        'scheduler_hints': {'group': [group.uuid]} if group else {},
        'instance_uuid': uuids[0],
        'security_groups': objects.SecurityGroupList(objects=[]),
        'network_metadata': objects.NetworkMetadata(physnets=set(), tunneled=False),
        'is_bfv': False,
        'requested_resources': [],
        'request_level_params': objects.RequestLevelParams(
            root_required=set(), root_forbidden=set(), same_subtree=[]
        ),
        'requested_networks': objects.NetworkRequestList(objects=[]),
    }
    # A null is a value on the wire, and objects take one from nowhere else.
    wire = Serializer().serialize_entity(RequestContext(), {**plain, **fields})
    spec: objects.RequestSpec = objects.RequestSpec.from_plain(wire)
    return spec


def _group(group: InstanceGroup) -> objects.InstanceGroup:
    return objects.InstanceGroup(
        uuid=group.uuid,
        name=group.name,
        user_id=USER,
        project_id=PROJECT,
        policy=group.policy,
        policies=[group.policy],
        members=sorted(group.members),
        hosts=sorted(group.hosts),
        _rules=dict(group.rules),
    )
