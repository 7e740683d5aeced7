# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from oslo_config import iniparser

from novasched.conf.options import OPTIONS

ETC = Path(__file__).parents[3] / 'etc'
KNOWN = {(group, option.dest) for group, option in OPTIONS}


def named(path: Path) -> set[tuple[str, str]]:
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
    ('path', 'keys'),
    [
        ('kolla/globals.yml', ['nova_scheduler_image_full']),
        ('openstack-helm/values.yaml', ['images', 'tags', 'nova_scheduler']),
    ],
)
def test_snippets_name_the_image_where_the_deployment_looks(path, keys):
    """The key leads to the name of an image."""
    value = yaml.safe_load((ETC / path).read_text())
    for key in keys:
        value = value[key]
    assert value.startswith('registry.example.org/')


@pytest.mark.parametrize(
    ('path', 'command'),
    [
        ('kolla/template-overrides.j2', '/var/lib/kolla/venv/bin/nova-scheduler'),
        ('openstack-helm/Dockerfile', '/var/lib/openstack/bin/nova-scheduler'),
    ],
)
def test_images_start_novasched_by_the_name_of_nova_scheduler(path, command):
    """Deployments go on starting, and probing, what they know."""
    assert f'ln -sf /opt/novasched/bin/novasched {command}\n' in (ETC / path).read_text()
