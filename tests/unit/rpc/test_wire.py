# SPDX-License-Identifier: Apache-2.0
"""Decoding of objects: lenient, with refusals, and with a separate registry."""

import itertools
import json
import logging

import pytest
from oslo_versionedobjects import base as ovo
from oslo_versionedobjects import fields

from novasched.rpc import wire
from tests.lab.wire import FLAVOR, a_spec, primitive, without_order

CELL = {'id': 0, 'cpuset': [0, 1], 'memory': 512}


@pytest.mark.parametrize(
    ('sent', 'known'),
    [
        (primitive('RequestSpec', '1.0', num_instances=2), {'num_instances': 2}),
        (primitive('RequestSpec', '1.8', user_id=None), {'user_id': None}),
        (primitive('RequestSpec', '1.15.1', project_id='p'), {'project_id': 'p'}),
        (
            primitive('RequestSpec', '1.99', project_id='p', colour='red'),
            {'project_id': 'p'},
        ),
        (
            primitive('Flavor', '1.0', vcpus='2', memory_mb=1.0),
            {'vcpus': 2, 'memory_mb': 1},
        ),
        (
            primitive('Flavor', '1.2', vcpus=None, swap=None),
            {'vcpus': None, 'swap': None},
        ),
        (
            primitive('InstanceGroup', '1.9', policies=['affinity']),
            {'policies': ['affinity'], 'hosts': None},
        ),
        (
            primitive('InstanceNUMACell', '1.4', **CELL),
            {'cpuset': {0, 1}, 'pcpuset': None},
        ),
        (
            primitive('InstanceNUMACell', '1.6', **CELL, cpu_policy='new'),
            {'cpu_policy': 'new'},
        ),
        (
            primitive('CellMapping', '1.1', uuid='u', disabled=False),
            {'uuid': 'u', 'disabled': False},
        ),
        (
            primitive('Flavor', '1.1', extra_specs={'ssd': None}),
            {'extra_specs': {'ssd': None}, 'description': None},
        ),
        (
            primitive(
                'InstancePCIRequest', '1.1', spec=[{'vendor_id': '8086', 'x': None}]
            ),
            {'spec': [{'vendor_id': '8086', 'x': None}], 'numa_policy': None},
        ),
    ],
)
def test_fields_of_every_minor_version_are_decoded(sent, known):
    """Fields of every minor version are decoded. Missing fields have no value."""
    decoded = wire.decode(sent)
    for name, value in known.items():
        assert decoded.value(name) == value


@pytest.mark.parametrize(
    ('sent', 'why'),
    [
        (None, 'expected an object, not null'),
        ([], 'expected an object, not list'),
        (
            {'id': 1},
            'a dict without nova_object.name and nova_object.version is not an object',
        ),
        (
            {**FLAVOR, 'nova_object.namespace': 'cinder'},
            'Flavor 1.2 is not in the namespace nova',
        ),
        (
            {**FLAVOR, 'nova_object.version': 'new'},
            "Flavor has the malformed version 'new'",
        ),
        (
            {**FLAVOR, 'nova_object.data': [1]},
            'Flavor 1.2 must have a dict of fields, not list',
        ),
        (
            primitive('RequestSpec', '2.0'),
            'RequestSpec 2.0 is not supported, only 1.x (up to 1.15)',
        ),
        (
            primitive('Selection', '2.3'),
            'Selection 2.3 is not supported, only 1.x (up to 1.1)',
        ),
        (
            primitive('Telescope', '1.0'),
            'Telescope 1.0 is an unknown object',
        ),
        (
            primitive('Flavor', '1.2', vcpus='many'),
            'Flavor 1.2, vcpus: invalid value of type str',
        ),
        (
            primitive('Flavor', '1.2', vcpus=float('inf')),
            'Flavor 1.2, vcpus: invalid value of type float',
        ),
        (
            primitive('Flavor', '1.2', extra_specs=['a']),
            'Flavor 1.2, extra_specs: invalid value of type list',
        ),
        (
            {**primitive('ImageMetaProps', '1.44'), 'nova_object.data': 'x'},
            'ImageMetaProps 1.44 must have a dict of fields, not str',
        ),
        (
            a_spec(force_hosts='host1'),
            'RequestSpec 1.15, force_hosts: invalid value of type str',
        ),
        (
            a_spec(force_hosts={'h': 1}),
            'RequestSpec 1.15, force_hosts: invalid value of type dict',
        ),
        (
            a_spec(force_hosts=7),
            'RequestSpec 1.15, force_hosts: invalid value of type int',
        ),
        (a_spec(image=FLAVOR), 'RequestSpec 1.15, image: invalid value of type dict'),
        (
            a_spec(image='debian'),
            'RequestSpec 1.15, image: expected an object, not str',
        ),
        (
            a_spec(flavor=primitive('Flavor', '3.0')),
            'RequestSpec 1.15, flavor: '
            'Flavor 3.0 is not supported, only 1.x (up to 1.2)',
        ),
        (
            a_spec(
                requested_networks=primitive('NetworkRequestList', '1.1', objects=[3])
            ),
            'RequestSpec 1.15, requested_networks: NetworkRequestList 1.1, objects: '
            'expected an object, not int',
        ),
    ],
)
def test_a_malformed_object_is_refused_with_the_reason(sent, why):
    """A malformed primitive is refused with a text with object, version and field."""
    with pytest.raises(wire.BadObject) as caught:
        wire.decode(sent)
    assert str(caught.value) == why


def test_refusals_and_decoded_cell_mappings_contain_no_secret():
    """A refusal contains no value of the primitive. A decoded cell mapping contains no
    password."""
    url = 'mysql://nova:secret@db/'
    with pytest.raises(wire.BadObject) as caught:
        wire.decode(primitive('CellMapping', '1.1', id=url, uuid='u'))
    assert 'secret' not in str(caught.value)
    cell = wire.decode(
        primitive('CellMapping', '1.1', uuid='u', database_connection=url)
    )
    assert 'secret' not in repr(vars(cell))


def test_a_newer_minor_version_is_warned_about_once(caplog):
    """A newer version leads to a warning per object, at any depth. Older versions, the
    supported version and versions of stable branches lead to no warning."""
    networks = primitive(
        'NetworkRequestList', '1.901', objects=[primitive('NetworkRequest', '1.901')]
    )
    with caplog.at_level(logging.WARNING, logger='novasched.rpc.wire'):
        for version in ('1.0', '1.14', '1.15', '1.15.3'):
            wire.decode(a_spec(version, colour='red'))
        assert not caplog.messages

        for _ in range(3):
            wire.decode(a_spec('1.901', requested_networks=networks))

    newer = '{} 1.901 is newer than the supported version {}; new fields are ignored'
    assert caplog.messages == [
        newer.format('RequestSpec', '1.15'),
        newer.format('NetworkRequestList', '1.1'),
        newer.format('NetworkRequest', '1.3'),
    ]


def test_registered_classes_of_nova_do_not_change_the_decoding(monkeypatch):
    """A class of the same name and version in the registry of oslo.versionedobjects, as
    in nova, does not change how novasched decodes, and vice versa."""

    class Flavor(ovo.VersionedObject):
        OBJ_SERIAL_NAMESPACE = 'nova_object'
        OBJ_PROJECT_NAMESPACE = 'nova'
        VERSION = '1.2'
        fields = {'vcpus': fields.StringField()}

    shared = ovo.VersionedObjectRegistry.obj_classes()
    monkeypatch.setitem(shared, 'Flavor', [*shared['Flavor']])
    ovo.VersionedObjectRegistry.register(Flavor)

    spec = wire.decode(a_spec())
    assert type(spec.value('flavor')) is wire.Flavor
    assert spec.value('flavor').value('vcpus') == 2
    assert ovo.VersionedObject.obj_class_from_name('Flavor', '1.2') is Flavor
    for registered in itertools.chain.from_iterable(shared.values()):
        assert not registered.__module__.startswith('novasched')


def test_json_and_plain_dicts_of_objects_are_decoded():
    """JSON of an object is decoded, and further JSON is refused. A dict without the
    envelope is decoded, with the objects in the dict."""
    for text in ('', '{', '[]', '3', '"Flavor"', '{"cells": []}'):
        with pytest.raises(wire.BadObject):
            wire.loads(text)

    assert wire.loads(json.dumps(FLAVOR)).value('memory_mb') == 512
    cell = wire.InstanceNUMACell.from_plain({**CELL, 'colour': 'red'})
    topology = wire.InstanceNUMATopology.from_plain({'cells': [cell]})
    assert topology.value('cells')[0].value('cpuset') == {0, 1}


@pytest.mark.parametrize(
    'sent',
    [
        FLAVOR,
        primitive('NetworkMetadata', '1.0', physnets=['p1'], tunneled=None),
        primitive(
            'SecurityGroupList',
            '1.1',
            objects=[primitive('SecurityGroup', '1.2', id=2)],
        ),
        {
            **primitive('SchedulerLimits', '1.0', vcpu=2),
            'nova_object.changes': ['vcpu'],
        },
    ],
    ids=lambda sent: sent['nova_object.name'],
)
def test_a_decoded_object_is_encoded_to_the_same_json(sent):
    """The JSON of a decoded object equals the received JSON."""
    again = json.loads(json.dumps(wire.decode(sent).obj_to_primitive()))
    assert without_order(again) == without_order(sent)


@pytest.mark.parametrize('version', ['1.0', '1.12', '1.44', '1.99'])
def test_every_image_property_is_kept(version):
    """Unknown and known properties stay unchanged, in every version."""
    properties = {
        'hw_architecture': 'x86_64',
        'hw_numa_nodes': 2,
        'hw_numa_cpus': [[0, 1], [2, 3]],
        'hw_machine_type': 'a type that no release knows yet',
        'hw_cpu_policy': None,
        'img_mappings': [{'a': 1}],
        'a property that no release knows': 'x',
    }
    sent = primitive('ImageMetaProps', version, **properties)
    decoded = wire.decode(primitive('ImageMeta', '1.8', properties=sent)).value(
        'properties'
    )
    assert decoded.values == properties
    assert decoded.obj_to_primitive() == sent
