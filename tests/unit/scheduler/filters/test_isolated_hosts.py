# SPDX-License-Identifier: Apache-2.0
from dataclasses import replace

import pytest

from novasched.conf.settings import Settings
from novasched.scheduler.filters.isolated_hosts import IsolatedHostsFilter
from novasched.scheduler.model.flavor import Image
from tests.lab.builders import a_host, a_request

FOR_HOSTS, FOR_IMAGES = 'the image is for isolated hosts', 'the host is for isolated images'


@pytest.mark.parametrize(
    ('images', 'restrict', 'host', 'image', 'verdict'),
    [
        (('i',), True, 'isolated', 'i', None),
        (('i',), True, 'isolated', 'other', FOR_IMAGES),
        (('i',), True, 'isolated', None, FOR_IMAGES),
        (('i',), True, 'open', 'i', FOR_HOSTS),
        (('i',), True, 'open', 'other', None),
        (('i',), False, 'isolated', 'i', None),
        (('i',), False, 'isolated', 'other', None),
        (('i',), False, 'open', 'i', FOR_HOSTS),
        (('i',), False, 'open', 'other', None),
        ((), True, 'isolated', 'i', FOR_IMAGES),
        ((), True, 'open', 'i', None),
        ((), False, 'isolated', 'i', None),
    ],
)
def test_isolated_images_go_with_isolated_hosts(images, restrict, host, image, verdict):
    """An isolated image needs an isolated host, which takes others only if they may."""
    settings = Settings(
        isolated_hosts=('isolated',),
        isolated_images=images,
        restrict_isolated_hosts_to_isolated_images=restrict,
    )
    request = replace(a_request(), image=Image(id=image) if image else None)
    assert IsolatedHostsFilter(settings).reject(a_host(host), request) == verdict


@pytest.mark.parametrize(
    ('settings', 'applies'),
    [
        ({}, False),
        ({'isolated_images': ('i',)}, True),
        ({'isolated_hosts': ('isolated',)}, True),
    ],
)
def test_applies_where_something_is_isolated(settings, applies):
    """Without the options there is nothing to check."""
    assert IsolatedHostsFilter(Settings(**settings)).applies(a_request()) is applies
