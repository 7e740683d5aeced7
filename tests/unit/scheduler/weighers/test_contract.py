# SPDX-License-Identifier: Apache-2.0
from random import Random

import pytest

from novasched.conf.settings import Settings
from novasched.scheduler.errors import BadPlugin
from novasched.scheduler.pipeline import Pipeline
from novasched.scheduler.weighers import Weigher
from novasched.scheduler.weighers.affinity import ServerGroupSoftAffinityWeigher
from novasched.scheduler.weighers.build_failure import BuildFailureWeigher
from novasched.scheduler.weighers.failure_domain import FailureDomainWeigher
from novasched.scheduler.weighers.image_properties import ImagePropertiesWeigher
from novasched.scheduler.weighers.ram import RAMWeigher
from tests.lab.builders import a_group, a_host, a_needs, a_request

RAM = 'ram_weight_multiplier'
NOTHING = a_needs(named=set())
SOFT = a_group('soft-affinity', ['s'])


class Untouchable(Weigher):
    """Applies to requests with the hint ``weigh``, and must not be asked to weigh."""

    multiplier = RAM

    def applies(self, request):
        return bool(request.hint('weigh'))

    def weigh(self, host, request):
        raise AssertionError('asked')


@pytest.mark.parametrize(
    ('metadata', 'factor'),
    [
        ((), 1.5),
        ([{'other': '9'}], 1.5),
        ([{RAM: '-2'}], -2.0),
        ([{RAM: '3'}, {RAM: '0.5'}], 0.5),
        ([{RAM: ' 1e1 '}], 10.0),
    ],
)
def test_aggregates_override_the_multiplier_option(metadata, factor):
    """The least number of the host's aggregates overrides the option, with the sign of
    the option. Metadata that is not a number is an error."""
    weigher = RAMWeigher(Settings(ram_weight_multiplier=1.5))
    assert weigher.scale(a_host(metadata=metadata)) == factor

    with pytest.raises(ValueError, match='could not convert'):
        weigher.scale(a_host(metadata=[*metadata, {RAM: 'much'}]))

    down = BuildFailureWeigher(Settings(build_failure_weight_multiplier=3.0))
    assert down.default_scale == -3.0
    assert down.scale(a_host(metadata={down.multiplier: '2'})) == -2.0


@pytest.mark.parametrize(
    ('option', 'hints', 'metadata', 'asked'),
    [
        (1.0, {}, (), False),
        (0.0, {'weigh': ['yes']}, (), False),
        (0.0, {'weigh': ['yes']}, {RAM: '0.0'}, False),
        (0.0, {'weigh': ['yes']}, {RAM: '1'}, True),
        (1.0, {'weigh': ['yes']}, {RAM: '0'}, True),
    ],
)
def test_a_weigher_with_scale_zero_on_all_hosts_is_not_asked(
    option, hints, metadata, asked
):
    """A weigher is asked only if it applies and its scale is not 0 on every host."""
    settings = Settings(ram_weight_multiplier=option)
    pipeline = Pipeline(settings, [], [Untouchable(settings)])
    hosts = [a_host('a'), a_host('b', metadata=metadata)]
    request = a_request(hints=hints)

    if asked:
        with pytest.raises(BadPlugin, match='asked'):
            pipeline.rank(hosts, request, 0, Random(1))
    else:
        ranking = pipeline.rank(hosts, request, 0, Random(1))
        assert list(ranking.hosts) == hosts


@pytest.mark.parametrize(
    ('settings', 'request_', 'needed'),
    [
        ({}, a_request(), NOTHING),
        ({}, a_request(image={'os_type': 'linux'}), NOTHING),
        ({}, a_request(group=SOFT), a_needs(named={'s'})),
        ({}, a_request(group=a_group('affinity', ['s'])), NOTHING),
        ({'image_props_weight_multiplier': 1.0}, a_request(), NOTHING),
        (
            {'image_props_weight_multiplier': 1.0},
            a_request(image={'os_type': 'x'}),
            a_needs(instances=True, images=True),
        ),
        ({'failure_domain_weight_multiplier': 1.0}, a_request(), NOTHING),
        (
            {'failure_domain_weight_multiplier': 1.0},
            a_request(group=SOFT),
            a_needs(members=True, named={'s'}, located={'s'}),
        ),
    ],
)
def test_only_data_that_an_applying_weigher_needs_is_read(settings, request_, needed):
    """Instances, images and the hosts of group members are read if a weigher that
    applies needs them."""
    values = Settings(**settings)
    weighers = [
        ServerGroupSoftAffinityWeigher(values),
        ImagePropertiesWeigher(values),
        FailureDomainWeigher(values),
    ]
    pipeline = Pipeline(values, [], weighers)
    assert pipeline.needs(request_) == needed
