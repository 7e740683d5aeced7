# SPDX-License-Identifier: Apache-2.0
import pytest

from novasched.tools.sandbox import databases as tables
from tests.lab.builders import a_request


@pytest.fixture
def servers(cloud):
    """Two servers on h1 and one that is gone, each with a flag of its image's."""
    engine, kept = cloud.engines['cell1'], tables.instance_system_metadata
    cloud.add_host('h1')
    for uuid, deleted in (('a', 0), ('b', 0), ('gone', 3)):
        cloud.add(engine, tables.instances, uuid=uuid, host='h1', deleted=deleted)
        cloud.add(engine, kept, instance_uuid=uuid, key='image_hw_pmu', value='1')
    cloud.add(engine, kept, instance_uuid='a', key='imageXos_type', value='x')
    cloud.add(engine, kept, instance_uuid='a', key='boot_roles', value='admin')
    cloud.add(engine, kept, instance_uuid='b', key='image_os_type', value='x', deleted=7)
    return cloud


@pytest.mark.parametrize(('images', 'properties'), [(True, {'hw_pmu': True}), (False, {})])
def test_images_of_servers(servers, images, properties):
    """Servers bring the properties of their images along when these are asked for; what
    a rebuild has replaced is not among them."""
    reader = servers.reader()
    (host,) = reader.read(None, a_request(), instances=True, images=images).hosts.values()
    assert {uuid: each.image_properties for uuid, each in host.instances.items()} == {
        'a': properties, 'b': properties,
    }  # fmt: skip
