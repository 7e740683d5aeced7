# SPDX-License-Identifier: Apache-2.0
from dataclasses import replace

import pytest

from novasched.conf.settings import Settings
from novasched.scheduler.model.host import Instance
from novasched.scheduler.weighers.image_properties import ImagePropertiesWeigher
from tests.lab.builders import a_host, a_request

LINUX = {'os_type': 'linux', 'hw_pmu': True}


def a_host_with(*images):
    servers = {str(i): Instance(str(i), image_properties=each) for i, each in enumerate(images)}
    return replace(a_host(), instances=servers)


def weigher(*setting, multiplier=1.0):
    return ImagePropertiesWeigher(
        Settings(image_props_weight_setting=setting, image_props_weight_multiplier=multiplier)
    )


@pytest.mark.parametrize(
    ('setting', 'images', 'weight'),
    [
        ([], [], 0),
        ([], [{}, {'os_type': 'windows'}], 0),
        ([], [LINUX, {'os_type': 'linux'}], 3),
        ([], [{'hw_pmu': False, 'os_distro': 'x'}], 0),
        (['os_type=2'], [LINUX, LINUX], 4.0),
        (['os_type=2', 'hw_pmu=-0.5'], [LINUX, {'hw_pmu': True}], 1.0),
        (['os_type=2', 'os_type=3'], [LINUX], 3.0),
        (['os_type=much'], [LINUX], 2),
    ],
)
def test_shared_properties(setting, images, weight):
    """Every server with an equal property counts, by its ratio where there are ratios."""
    request = a_request(image=LINUX)
    assert weigher(*setting).weigh(a_host_with(*images), request) == weight


@pytest.mark.parametrize(
    ('setting', 'multiplier', 'image', 'applies'),
    [
        ([], 1.0, LINUX, True),
        ([], 0.0, LINUX, False),
        ([], -1.0, LINUX, True),
        ([], 1.0, {}, False),
        ([], 1.0, None, False),
        (['os_type=1'], 1.0, LINUX, True),
        (['os_distro=1'], 1.0, LINUX, False),
    ],
)
def test_when_images_are_looked_at(setting, multiplier, image, applies):
    """The option must not be 0, and the request must have a property that counts."""
    assert weigher(*setting, multiplier=multiplier).applies(a_request(image=image)) == applies
