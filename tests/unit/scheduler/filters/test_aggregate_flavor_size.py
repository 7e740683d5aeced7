# SPDX-License-Identifier: Apache-2.0
"""Hosts for flavors of a size; the tests of every filter find the cases."""

from tests.lab.builders import Cases, a_flavor

CASES = Cases()


def between(least, greatest):
    """Fields of a host for flavors with some numbers of vCPUs."""
    return {'metadata': {'min_flavor_vcpus': least, 'max_flavor_vcpus': greatest}}


# The bounds are part of the range.
CASES.rows(
    'AggregateFlavorSizeFilter',
    ({}, {}, None),
    ({'metadata': {'ssd': 'true'}}, {}, None),
    (between('8', '8'), {}, None),
    (between('9', '16'), {}, 'min_flavor_vcpus is 9, the flavor has 8'),
    (between('1', '7'), {}, 'max_flavor_vcpus is 7, the flavor has 8'),
    request={'flavor': a_flavor(vcpus=8, memory_mb=16_384)},
)

# Every bound of every aggregate holds.
CASES.rows(
    'AggregateFlavorSizeFilter',
    (
        {'metadata': {'min_flavor_memory_mb': '32768'}},
        {},
        'min_flavor_memory_mb is 32768, the flavor has 16384',
    ),
    ({'metadata': [{'max_flavor_memory_mb': '16384'}, {}]}, {}, None),
    (
        {'metadata': [{'min_flavor_vcpus': '4'}, {'min_flavor_vcpus': '16'}]},
        {},
        'min_flavor_vcpus is 16, the flavor has 8',
    ),
    (
        {'metadata': {'max_flavor_vcpus': 'many'}},
        {},
        "max_flavor_vcpus is 'many', which is no whole number",
    ),
    request={'flavor': a_flavor(vcpus=8, memory_mb=16_384)},
)
