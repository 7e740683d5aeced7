# SPDX-License-Identifier: Apache-2.0
"""Print the calls that an old release sends, one JSON object a line. Runs in its virtualenv:

    for release in ocata pike queens; do
        ${python_of[$release]} tests/releases/record.py $release
    done > tests/lab/messages/old.jsonl

Kilo, Liberty and Mitaka are told by Ocata, which could still talk to them: the dicts by the
code that was to serve conductors of theirs, the RequestSpec backported to Mitaka's version.
"""

import argparse
import json

from nova import objects
from nova.objects import base
from nova.scheduler import utils
from nova_side import PROJECT, USER, Nova, a_flavor
from oslo_config import cfg
from oslo_serialization import jsonutils

MITAKA = {
    'RequestSpec': '1.5', 'ImageMeta': '1.7', 'ImageMetaProps': '1.12', 'Flavor': '1.1',
    'InstanceNUMATopology': '1.2', 'InstanceNUMACell': '1.3', 'InstancePCIRequests': '1.1',
    'InstancePCIRequest': '1.1', 'InstanceGroup': '1.10', 'SchedulerRetries': '1.1',
    'ComputeNodeList': '1.14', 'ComputeNode': '1.14', 'SchedulerLimits': '1.0',
    'NUMATopologyLimits': '1.0',
}  # fmt: skip
ALIAS = {'vendor_id': '8086', 'product_id': '10fb', 'device_type': 'type-PCI', 'name': 'nic'}
SERVER = '0d9ad9f1-7a1c-4bd2-8a2b-4d1a0c6e0b01'
OTHER = '0d9ad9f1-7a1c-4bd2-8a2b-4d1a0c6e0b02'
SPECS = {
    'plain': {},
    'pinned': {'hw:cpu_policy': 'dedicated', 'hw:numa_nodes': '1'},
    'device': {'pci_passthrough:alias': 'nic:1'},
    'group': {},
}


def spec_of(case):
    spec = Nova().new_spec(SERVER, a_flavor(SPECS[case]))
    if case == 'group':
        spec.instance_group = objects.InstanceGroup(
            uuid='7c0b9f1e-3b1a-4c55-9a46-0f5f0a6c2d02', name='apart', user_id=USER,
            project_id=PROJECT, policies=['anti-affinity'], members=[SERVER, OTHER], hosts=['taken'],
        )  # fmt: skip
        spec.scheduler_hints = {'group': [spec.instance_group.uuid]}
    return spec


def dicts(spec):
    instance = {
        'uuid': SERVER, 'project_id': PROJECT, 'user_id': USER, 'vcpus': 2, 'memory_mb': 512,
        'root_gb': 1, 'ephemeral_gb': 0, 'availability_zone': None, 'system_metadata': {},
        'numa_topology': spec.numa_topology and base.obj_to_primitive(spec.numa_topology),
        'pci_requests': base.obj_to_primitive(spec.pci_requests),
    }  # fmt: skip
    image = {'id': spec.image.id, 'status': 'active', 'properties': {}}
    return {
        'request_spec': utils.build_request_spec(None, image, [instance], spec.flavor),
        'filter_properties': jsonutils.to_primitive(plain_filters(spec)),
    }


def plain_filters(spec):
    """Filter properties whose only object, the group, is spread over keys of its own."""
    found = spec.to_legacy_filter_properties_dict()
    group = found.pop('instance_group', None)
    if group is not None:
        found.update(
            group_updated=True, group_hosts=set(group.hosts), group_policies=set(group.policies)
        )
    return {name: value for name, value in found.items() if value not in (None, {})}


def calls(release, spec):
    sent = base.NovaObjectSerializer().serialize_entity(None, spec)
    if release == 'queens':
        wanted = {'return_objects': True, 'return_alternates': True}
        yield 'queens', '4.5', {'spec_obj': sent, 'instance_uuids': [SERVER], **wanted}
    elif release == 'pike':
        yield 'pike', '4.4', {'spec_obj': sent, 'instance_uuids': [SERVER]}
    else:
        yield 'ocata', '4.3', {'spec_obj': sent}
        old = spec.obj_to_primitive(target_version=MITAKA['RequestSpec'], version_manifest=MITAKA)
        yield 'mitaka', '4.3', {'spec_obj': old}
        yield 'liberty', '4.0', dicts(spec)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('release', choices=['ocata', 'pike', 'queens'])
    release = parser.parse_args().release
    cfg.CONF.set_override('alias', [json.dumps(ALIAS)], group='pci')
    objects.register_all()
    for case in SPECS:
        for sender, version, arguments in calls(release, spec_of(case)):
            message = {'case': case, 'from': sender, 'version': version, 'arguments': arguments}
            print(jsonutils.dumps(message, sort_keys=True))


if __name__ == '__main__':
    main()
