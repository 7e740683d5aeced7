# SPDX-License-Identifier: Apache-2.0
"""nova-compute with a driver of the tests beside nova's own drivers.

    python serve_compute.py OPTIONS OF NOVA-COMPUTE

The Python is the Python that has nova.
"""

import json
import sys

from nova import exception
from nova.cmd import compute
from nova.virt import fake

GPUS = 2
CARDS = 2
FUNCTIONS = 2
"""Virtual functions of each network card."""


class DriverWithDevices(fake.FakeDriverWithoutFakeNodes):
    """A fake driver with GPUs, network cards and an SSD as PCI devices.

    The number of the node, as in ``devices-2``, is a part of the addresses: no two
    nodes have a device of the same address.
    """

    def get_available_resource(self, nodename):
        resources = super().get_available_resource(nodename)
        number = int(nodename.rpartition('-')[2])
        resources['pci_passthrough_devices'] = json.dumps(devices_of(number))
        return resources

    def spawn(self, context, instance, *arguments, **options):
        """Build a server, unless its metadata names this host as ``fails_on``."""
        if instance.metadata.get('fails_on') == instance.host:
            raise exception.ComputeResourcesUnavailable(reason='fails_on')
        super().spawn(context, instance, *arguments, **options)


def devices_of(number):
    """The PCI devices of a node. Letters in the addresses show the case in which
    nova-compute writes the names of providers."""
    devices = []
    for slot in range(GPUS):
        devices.append(_device(f'0000:{number}a:{slot:02x}.0', '10de', '20b0'))
    for slot in range(CARDS):
        card = f'0000:{number}b:{slot:02x}'
        for function in range(1, 1 + FUNCTIONS):
            address = f'{card}.{function}'
            devices.append(_device(address, '8086', '154c', f'{card}.0'))
    devices.append(_device(f'0000:{number}c:00.0', '144d', 'a824'))
    return devices


def _device(address, vendor, product, card=None):
    """A device; a virtual function if a card is given."""
    return {
        'dev_id': f'pci_{address}',
        'address': address,
        'vendor_id': vendor,
        'product_id': product,
        'dev_type': 'type-PCI' if card is None else 'type-VF',
        'parent_addr': card,
        'numa_node': 0,
        'label': f'label_{vendor}_{product}',
        'status': 'available',
    }


if __name__ == '__main__':
    # nova loads drivers from the package nova.virt only.
    sys.modules['nova.virt.devices'] = sys.modules['__main__']
    sys.exit(compute.main())
