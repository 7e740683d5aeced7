# SPDX-License-Identifier: Apache-2.0
from pathlib import Path

import pytest
import yaml
from oslo_config import iniparser

from novasched.conf.options import OPTIONS

ETC = Path(__file__).parents[3] / 'etc'
LINK = 'ln -sf /opt/novasched/bin/novasched'
KNOWN = {(group, option.dest) for group, option in OPTIONS}


def named(path):
    """The options that a snippet sets, by group and name."""
    if path.suffix == '.yaml':
        groups = yaml.safe_load(path.read_text())['conf']['nova']
        return {(group, name) for group, options in groups.items() for name in options}
    found = set()

    class Parser(iniparser.BaseParser):
        group = 'DEFAULT'

        def new_section(self, section):
            self.group = section

        def assignment(self, key, value):
            found.add((self.group, key))

    Parser().parse(path.read_text().splitlines())
    return found


@pytest.mark.parametrize(
    'path', ['kolla/config/nova/nova-scheduler.conf', 'openstack-helm/values.yaml']
)
def test_snippets_set_options_that_exist(path):
    """What a deployment is told to set, the daemon reads."""
    assert named(ETC / path)
    assert named(ETC / path) <= KNOWN


@pytest.mark.parametrize(
    ('path', 'line'),
    [
        ('kolla/globals.yml', 'nova_scheduler_image_full: "registry.example.org/'),
        ('openstack-helm/values.yaml', 'nova_scheduler: registry.example.org/'),
        ('kolla/template-overrides.j2', f'{LINK} /var/lib/kolla/venv/bin/nova-scheduler\n'),
        ('openstack-helm/Dockerfile', f'{LINK} /var/lib/openstack/bin/nova-scheduler\n'),
    ],
)
def test_deployments_find_the_image_and_nova_scheduler_in_it(path, line):
    """They go on starting, and probing, what they know."""
    assert line in (ETC / path).read_text()
