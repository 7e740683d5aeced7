# SPDX-License-Identifier: Apache-2.0
"""The documentation's examples, found by name as an operator names them."""

import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from random import Random

import pytest

from novasched.conf.settings import ALL_FILTERS, ALL_WEIGHERS, Settings
from novasched.plugins import loading
from novasched.scheduler.pipeline import Pipeline
from tests.lab.builders import a_host, a_request

HOSTS = [
    a_host('plain', ram=8192),
    a_host(
        'licensed',
        ram=4096,
        metadata={'windows_licensed': 'true', 'watts_per_vcpu': '20'},
    ),
    a_host(
        'unlicensed',
        ram=2048,
        metadata={'windows_licensed': 'no', 'watts_per_vcpu': '10'},
    ),
    a_host(
        'scaled',
        ram=1024,
        metadata={'watts_per_vcpu': '9', 'power_weight_multiplier': '-1'},
    ),
]
ALL = [host.host for host in HOSTS]
STYLES = pytest.mark.parametrize('module', ['acme_scheduling', 'acme_for_nova'])


def ranked(settings, request, index=0):
    """The names of the remaining hosts, the best host first."""
    line = Pipeline(settings, loading.filters(settings), loading.weighers(settings))
    found = line.for_request().rank(HOSTS, request, index, Random(1)).hosts
    return [host.host for host in found]


@STYLES
@pytest.mark.parametrize(
    ('image', 'index', 'left'),
    [
        (None, 0, ALL),
        ({}, 0, ALL),
        ({'os_type': 'linux'}, 0, ALL),
        ({'os_type': 'windows'}, 0, ['licensed']),
        ({'os_type': 'windows'}, 1, ALL),
    ],
)
def test_the_example_filter_keeps_windows_on_licensed_hosts(module, image, index, left):
    """Windows goes to hosts with a licence; other images go anywhere. For the second
    instance of a request the filter is not asked again."""
    settings = Settings(
        available_filters=(ALL_FILTERS, f'{module}.WindowsLicenseFilter'),
        enabled_filters=('ComputeFilter', 'WindowsLicenseFilter'),
        weight_classes=(),
    )
    assert ranked(settings, a_request(count=2, image=image), index) == left


@STYLES
@pytest.mark.parametrize(
    ('others', 'order'),
    [
        ((), ['unlicensed', 'licensed', 'plain', 'scaled']),
        ((ALL_WEIGHERS,), ['licensed', 'unlicensed', 'plain', 'scaled']),
    ],
)
def test_the_example_weigher_prefers_hosts_with_less_power(module, others, order):
    """The weigher decides alone, and beside built-in weighers. The multiplier of an
    aggregate can reverse the order."""
    settings = Settings(
        enabled_filters=(), weight_classes=(*others, f'{module}.PowerWeigher')
    )
    assert ranked(settings, a_request()) == order


def test_the_filter_test_in_the_documentation_passes():
    """The test of the filter in the documentation passes."""
    import_module('acme_test').test_windows_goes_to_licensed_hosts()


def test_the_cloud_test_in_the_documentation_passes():
    """The test of a whole scheduler in the documentation passes under pytest, with the
    fixtures of novasched."""
    examples = Path(import_module('acme_test').__file__).parent
    run = subprocess.run(
        [
            sys.executable,
            '-m',
            'pytest',
            '-q',
            '-p',
            'no:cacheprovider',
            'acme_cloud_test.py',
        ],
        cwd=examples,
        capture_output=True,
        text=True,
        env={**os.environ, 'PYTEST_ADDOPTS': ''},
    )
    assert '1 passed' in run.stdout, run.stdout + run.stderr
