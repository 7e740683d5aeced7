# SPDX-License-Identifier: Apache-2.0
"""nova-conductor's part: it makes the RequestSpec and calls the scheduler."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import oslo_messaging
from oslo_config import cfg
from oslo_context.context import RequestContext

from novasched import objects
from novasched.errors import NovaschedError
from novasched.model.request import Flavor, InstanceGroup
from novasched.rpc import versions
from novasched.rpc.serializer import Serializer
from novasched.rpc.server import TOPIC, make_transport
from novasched.sandbox.records import flavor_id

TIMEOUT = 60  # seconds
USER, PROJECT = 'sandbox-user', 'sandbox-project'


class NoAnswer(NovaschedError):
    """For whoever runs the sandbox: neither hosts nor a refusal came back."""


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
        """Close the transport."""
        self._transport.cleanup()

    def select_destinations(
        self, spec: objects.RequestSpec, uuids: Sequence[str], alternates: bool = True
    ) -> list[list[objects.Selection]]:
        """For each server the host that was claimed for it, then its alternates.

        :raises novasched.rpc.faults.NoValidHost: not every server gets a host
        :raises NoAnswer: the scheduler does not answer
        """
        client = self._client.prepare(version=versions.LATEST, timeout=TIMEOUT)
        try:
            chosen: list[list[objects.Selection]] = client.call(
                RequestContext(user_id=USER, project_id=PROJECT),
                'select_destinations',
                spec_obj=spec,
                instance_uuids=list(uuids),
                return_objects=True,
                return_alternates=alternates,
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
        'image': _image(image_properties or {}),
        'numa_topology': None,
        'pci_requests': None,
        'project_id': PROJECT,
        'user_id': USER,
        'availability_zone': zone,
        'flavor': _flavor(flavor),
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


def _image(properties: Mapping[str, Any]) -> objects.ImageMeta:
    return objects.ImageMeta(
        min_ram=0, min_disk=0, properties=objects.ImageMetaProps.from_plain(properties)
    )


def _flavor(flavor: Flavor) -> objects.Flavor:
    return objects.Flavor(
        id=flavor_id(flavor),
        name=flavor.name,
        flavorid=flavor.flavorid,
        vcpus=flavor.vcpus,
        memory_mb=flavor.memory_mb,
        root_gb=flavor.root_gb,
        ephemeral_gb=flavor.ephemeral_gb,
        swap=flavor.swap,
        extra_specs=dict(flavor.extra_specs),
    )


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
