# SPDX-License-Identifier: Apache-2.0
"""Requests: extra specs, image properties and hints of any content, before every
filter, weigher and prefilter."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from novasched.rpc.faults import NoValidHostFault
from novasched.rpc.wire.base import DATA
from tests.fuzz import mutation
from tests.fuzz.clouds import a_call, full
from tests.fuzz.mutation import EFFORT, one_input
from tests.lab import request_keys
from tests.lab.wire import primitive

mask = st.lists(
    st.builds(
        '{}{}-{}'.format,
        st.sampled_from(['', '^']),
        st.integers(0, 9),
        st.integers(0, 70000),
    ),
    max_size=3,
).map(','.join)
path = st.lists(
    st.sampled_from(['$free_ram_mb', 'stats', 'service', 'host', 'x', '__class__', '']),
    max_size=4,
).map('.'.join)
query = st.recursive(
    mutation.scalar | path,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.tuples(
            st.sampled_from(['=', '<', '>', '<=', '>=', 'in', 'not', 'or', 'and']),
            inner,
            inner,
        ).map(list)
    ),
    max_leaves=12,
)
PARTS = ('numa_topology', 'pci_requests', 'requested_destination', 'instance_group')
text = mutation.text | mask
values = text | mutation.value.map(mutation.unwrapped)


def a_request(extra_specs, image, hints, sizes, plain=False):
    """The message that asks for everything, or for nothing but this."""
    arguments = full()
    spec = arguments['spec_obj'][DATA]
    if plain:
        spec.update(dict.fromkeys(PARTS))
        spec['image'] = primitive(
            'ImageMeta', '1.8', properties=primitive('ImageMetaProps', '1.44')
        )
        spec['flavor'][DATA]['extra_specs'] = spec['scheduler_hints'] = {}
    spec['flavor'][DATA]['extra_specs'] = {
        **spec['flavor'][DATA]['extra_specs'],
        **extra_specs,
    }
    spec['flavor'][DATA].update(sizes)
    spec['scheduler_hints'] = {**spec['scheduler_hints'], **hints}
    properties = spec['image'][DATA]['properties'][DATA]
    spec['image'][DATA]['properties'][DATA] = {**properties, **image}
    return a_call(arguments)


@EFFORT
@given(
    extra_specs=st.dictionaries(request_keys.extra_spec | text, text, max_size=4),
    image=st.dictionaries(request_keys.image_property | text, values, max_size=3),
    hints=st.dictionaries(
        request_keys.hint | text, st.lists(text, max_size=2), max_size=3
    ),
    sizes=st.dictionaries(
        st.sampled_from(['vcpus', 'memory_mb', 'root_gb', 'swap']),
        mutation.number,
        max_size=1,
    ),
    plain=st.booleans(),
)
def test_a_request_with_any_content_is_decided_or_refused(cloud, **asked):
    """A request with any texts and numbers is decided or refused."""
    with one_input('requests'):
        cloud.scheduler.answer(a_request(**asked))


@EFFORT
@given(query=query, plain=st.booleans())
def test_a_request_with_any_json_query_is_decided_or_refused(cloud, query, plain):
    """A request with any condition in JSON is decided or refused."""
    with one_input('requests'):
        hints = {'query': [json.dumps(query)]}
        cloud.scheduler.answer(a_request({}, {}, hints, {}, plain))


EVERY = '0-65535,' * 8000
KEPT = {
    'A mask that names all CPUs again and again': (
        {'hw:cpu_realtime': 'yes'},
        {'hw_cpu_realtime_mask': EVERY},
        {},
    ),
    'A list of so many vCPUs that it fills the memory': ({}, {}, {'vcpus': 2**31 - 1}),
    'A version with more digits than a number may have': (
        {},
        {'img_hv_requested_version': f'>={"9" * 5000}'},
        {},
    ),
}
"""Inputs that showed a bug: extra specs, properties of the image, and sizes."""


@pytest.mark.parametrize('asked', KEPT.values(), ids=KEPT)
def test_kept_requests_that_once_showed_a_bug_are_refused(cloud, asked):
    """An input that once showed a bug is refused."""
    extra_specs, image, sizes = asked
    with one_input('requests'):
        assert isinstance(
            cloud.scheduler.answer(a_request(extra_specs, image, {}, sizes)),
            NoValidHostFault,
        )
