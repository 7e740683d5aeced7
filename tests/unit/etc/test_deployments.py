# SPDX-License-Identifier: Apache-2.0
import configparser
import re
from pathlib import Path

import jinja2
import pytest
import yaml
from oslo_config import iniparser

from novasched.conf.options import OPTIONS

TOP = Path(__file__).parents[3]
ETC = TOP / 'etc'
LINK = 'ln -sf /opt/novasched/bin/novasched'
KNOWN = {(group, option.dest) for group, option in OPTIONS}
# An option of oslo.service.
KNOWN.add(('DEFAULT', 'graceful_shutdown_timeout'))


def named(path):
    """The options that a snippet sets, by group and name."""
    text = path.read_text()
    if path.suffix in ('.yaml', '.yml'):
        values = yaml.safe_load(text)
        if 'spec' in values:
            template = values['spec']['nova']['template']['schedulerServiceTemplate']
            return named_in(template['customServiceConfig'])
        groups = values.get('nova_helm_values', values)['conf']['nova']
        names = set()
        for group, options in groups.items():
            names.update((group, name) for name in options)
        return names
    return named_in(text)


def named_in(text):
    """The options that a nova.conf sets, by group and name."""
    found = set()

    class Parser(iniparser.BaseParser):
        group = 'DEFAULT'

        def new_section(self, section):
            self.group = section

        def assignment(self, key, value):
            found.add((self.group, key))

    Parser().parse(text.splitlines())
    return found


@pytest.mark.parametrize(
    'path',
    [
        'atmosphere/nova.yml',
        'genestack/novasched.yaml',
        'kolla/config/nova/nova-scheduler.conf',
        'openstack-helm/values.yaml',
        'rhoso/openstackcontrolplane.yaml',
    ],
)
def test_snippets_set_options_that_exist(path):
    """The daemon has every option that a deployment sets."""
    assert named(ETC / path)
    assert named(ETC / path) <= KNOWN


@pytest.mark.parametrize(
    ('path', 'line'),
    [
        ('kolla/globals.yml', 'nova_scheduler_image_full: "registry.example.org/'),
        ('openstack-helm/values.yaml', 'nova_scheduler: registry.example.org/'),
        ('atmosphere/nova.yml', 'nova_scheduler: registry.example.org/'),
        ('genestack/novasched.yaml', 'nova_scheduler: registry.example.org/'),
        ('rhoso/openstackversion.yaml', 'novaSchedulerImage: registry.example.org/'),
        ('rhoso/Containerfile', f'{LINK} /usr/bin/nova-scheduler\n'),
        ('sunbeam/rockcraft.yaml', 'command: nova-scheduler\n'),
        (
            'kolla/template-overrides.j2',
            f'{LINK} /var/lib/kolla/venv/bin/nova-scheduler\n',
        ),
        (
            'openstack-helm/Dockerfile',
            f'{LINK} /var/lib/openstack/bin/nova-scheduler\n',
        ),
    ],
)
def test_deployments_name_the_image_and_the_nova_scheduler_program(path, line):
    """Deployments start and probe the program nova-scheduler, as before."""
    assert line in (ETC / path).read_text()


def test_the_prometheus_job_of_kolla_has_every_scheduler():
    """The rendered snippet of kolla-ansible equals the job in prometheus.yml, and has
    the port of the documentation."""
    filters = {
        'kolla_address': lambda network, host: f'{network}-of-{host}',
        'put_address_in_context': lambda address, _context: f'[{address}]',
    }
    environment = jinja2.Environment(trim_blocks=True)  # as ansible's
    environment.filters.update(filters)
    file = (
        ETC / 'kolla' / 'config' / 'prometheus' / 'prometheus.yml.d' / 'novasched.yml'
    )
    groups = {'nova-scheduler': ['one', 'two']}
    rendered = environment.from_string(file.read_text()).render(groups=groups)
    [job] = yaml.safe_load(rendered)['scrape_configs']
    targets = ['[api-of-one]:18774', '[api-of-two]:18774']
    assert job == {'job_name': 'novasched', 'static_configs': [{'targets': targets}]}
    assert (
        'metrics_bind = 192.0.2.10:18774'
        in (TOP / 'doc/source/metrics.rst').read_text()
    )


def test_openstack_ansible_starts_novasched_as_the_unit_does():
    """The overrides for the unit of nova-scheduler have the values of the unit of
    novasched."""
    variables = yaml.safe_load(
        (ETC / 'openstack-ansible' / 'user_variables.yml').read_text()
    )
    unit = configparser.RawConfigParser(strict=False)
    unit.optionxform = str
    unit.read(ETC / 'systemd' / 'novasched.service')
    overridden = variables['nova_scheduler_init_overrides']['Service']
    command = overridden.pop('ExecStart')
    assert unit['Service']['ExecStart'].split()[0] == command
    assert overridden
    for name, value in overridden.items():
        assert unit['Service'][name] == str(value)


@pytest.mark.parametrize(
    ('path', 'pattern'),
    [('Containerfile', r'^ARG EXTRAS=(.+)$'), ('debian/rules', r'^EXTRAS = (.+)$')],
)
def test_packages_bring_extras_that_exist(path, pattern):
    """The extras exist, since pip only warns of unknown extras."""
    setup = configparser.ConfigParser()
    setup.read(TOP / 'setup.cfg')
    [extras] = re.findall(pattern, (TOP / path).read_text(), re.M)
    assert set(extras.split(',')) <= set(setup['extras'])


def graceful_shutdown():
    """The default of ``[DEFAULT] graceful_shutdown_timeout``, in seconds."""
    sample = (ETC / 'novasched.conf.sample').read_text()
    [seconds] = re.findall(r'^#graceful_shutdown_timeout = (\d+)$', sample, re.M)
    return int(seconds)


def test_helm_kills_a_pod_after_the_graceful_shutdown():
    """Kubernetes waits longer than novasched for the requests in progress."""
    values = yaml.safe_load((ETC / 'openstack-helm' / 'values.yaml').read_text())
    period = values['pod']['lifecycle']['termination_grace_period']['scheduler']
    assert period['timeout'] > graceful_shutdown()


def test_a_nova_operator_pod_stops_before_the_kill_by_kubernetes():
    """nova-operator leaves the grace period at the 30 seconds of Kubernetes."""
    values = yaml.safe_load((ETC / 'rhoso/openstackcontrolplane.yaml').read_text())
    template = values['spec']['nova']['template']['schedulerServiceTemplate']
    [seconds] = re.findall(
        r'^graceful_shutdown_timeout = (\d+)$', template['customServiceConfig'], re.M
    )
    assert int(seconds) < 30


def test_openstack_ansible_installs_the_journal_extra():
    """The recipe for openstack-ansible installs the extra for ``use_journal = True``."""
    recipes = (TOP / 'doc' / 'source' / 'deployments.rst').read_text()
    section = recipes.partition('openstack-ansible\n=====')[2].partition('\n====')[0]
    setup = configparser.ConfigParser()
    setup.read(TOP / 'setup.cfg')
    assert 'systemd-python' in setup['extras']['journal']
    assert "pip install 'novasched[journal]'" in section
