# SPDX-License-Identifier: Apache-2.0
from datetime import datetime

from novasched.notify import context, legacy
from tests.unit.rpc.wire import CALLS, MADE, context_of

DATA = 'nova_object.data'
BOOT = CALLS['boot']['args']['spec_obj']
EVERYTHING = MADE['everything']['spec_obj'][DATA]
CALLER = {**context_of(CALLS['boot']), 'auth_token': 'secret', 'remote_address': '192.0.2.1'}
NOW = datetime(2026, 11, 21, 12, 0, 0, 5)


def told(spec):
    insides = context.insides(context.on_wire(CALLER, NOW))
    return legacy.payload(spec, insides)['request_spec']


def test_the_four_parts():
    """Image and flavor are plain dicts of what is set, with times to the microsecond."""
    spec = told(BOOT[DATA])
    assert set(spec) == {'num_instances', 'image', 'instance_properties', 'instance_type'}
    assert spec['image']['created_at'] == '2026-11-21T00:50:50.000000'
    assert spec['image']['properties'] == {}
    assert 'direct_url' not in spec['image']
    assert spec['instance_type']['vcpus'] == spec['instance_properties']['vcpus'] == 1
    assert spec['instance_properties']['uuid'] == BOOT[DATA]['instance_uuid']


def test_a_volume_has_no_image():
    """A request without an image has an empty one."""
    assert told({**BOOT[DATA], 'image': None})['image'] == {}


def test_devices_show_their_insides_but_no_secret():
    """PCI requests are attributes of objects, with the caller's context less its token."""
    devices = told(EVERYTHING)['instance_properties']['pci_requests']
    assert devices['VERSION'] == '1.1'
    assert devices['_obj_requests'][0]['_obj_count'] == 2
    assert devices['_context']['user_id'] == CALLER['user_id']
    assert devices['_context']['_is_admin'] is True
    assert 'secret' not in str(devices)
    assert '192.0.2.1' not in str(devices)


def test_cells_are_plain():
    """A NUMA topology is dicts of fields."""
    cells = told(EVERYTHING)['instance_properties']['numa_topology']['cells']
    assert [each['pcpuset'] for each in cells] == [[2, 3], [4, 5, 6, 7]]


def test_the_context_on_the_wire():
    """It is what oslo.context has and what nova adds, without what is secret."""
    wire = context.on_wire({'user': 'u', 'project_id': 'p', 'auth_token': 'secret'}, NOW)
    assert wire['user_id'] == 'u'
    assert wire['timestamp'] == '2026-11-21T12:00:00.000005'
    assert (wire['auth_token'], wire['remote_address'], wire['service_catalog']) == (None, None, [])
