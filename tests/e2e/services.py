# SPDX-License-Identifier: Apache-2.0
"""The services of the cloud except the scheduler: Glance, nova's services, and a stub
of Neutron."""

import json
import os
from pathlib import Path
from urllib.parse import urlsplit

import requests

from tests.lab.nova_release import (
    ENVIRONMENT,
    merged,
    named_python,
    run,
    write_config,
)
from tests.lab.processes import Process, free_port
from tests.lab.proxy import JSON, HttpStub

START = 120.0  # seconds
SERVE = Path(__file__).with_name('serve_wsgi.py')
COMPUTE = Path(__file__).with_name('serve_compute.py')
DRIVER = 'fake.FakeDriverWithoutFakeNodes'
"""A fake driver whose node keeps its UUID when nova-compute restarts."""
NOVA_PASTE = """\
[composite:osapi_compute]
use = egg:Paste#urlmap
/v2.1: api

[pipeline:api]
pipeline = faultwrap keystonecontext api_app

[filter:faultwrap]
paste.filter_factory = nova.api.openstack:FaultWrapper.factory

[filter:keystonecontext]
paste.filter_factory = nova.api.auth:NovaKeystoneContext.factory

[app:api_app]
paste.app_factory = nova.api.openstack.compute:APIRouterV21.factory
"""
"""Without authtoken, nova believes the headers that Keystone's middleware would set."""
GLANCE_PASTE = """\
[composite:glance-api]
use = egg:Paste#urlmap
/: versions
/v2: images

[pipeline:versions]
pipeline = unauthenticated versions_app

[pipeline:images]
pipeline = unauthenticated images_app

[app:versions_app]
paste.app_factory = glance.api.versions:create_resource

[app:images_app]
paste.app_factory = glance.api.v2.router:API.factory

[filter:unauthenticated]
paste.filter_factory = glance.api.middleware.context:UnauthenticatedContextMiddleware.factory
"""
"""Without Keystone, every caller is admin."""
GLANCE_RULES = (
    'add_image',
    'publicize_image',
    'upload_image',
    'get_images',
    'get_image',
)
"""A caller without a token has no role, so that these rules must not ask for a role."""

EXTENSIONS = [{'alias': 'binding-extended'}]
"""The extensions of Neutron. Without this extension, nova moves no running server with
a PCI device."""


class Service:
    """A child process, which may be killed and started again."""

    def __init__(self, command, log, environment):
        self._command = command
        self._log = log
        self._environment = {**os.environ, **environment}
        self._process: Process | None = None

    def start(self):
        self._process = Process(self._command, self._log, env=self._environment)
        return self._process

    def kill(self):
        if self._process is not None:
            self._process.kill()

    close = kill


class WebService(Service):
    """A WSGI application of another virtualenv on a free port. :meth:`start` returns
    when the application serves.

    :param module: the module of the application; its first part names the log file.
    """

    def __init__(self, python, module, directory, environment):
        port = free_port()
        self.url = f'http://127.0.0.1:{port}'
        self._ready = f'serving {module}'
        log = directory / f'{module.partition(".")[0]}-api.log'
        super().__init__([str(python), str(SERVE), module, str(port)], log, environment)

    def start(self):
        process = super().start()
        process.ready(lambda: self._ready in process.text(), START, self._ready)
        return process


class ImageService(WebService):
    """Glance with an SQLite database and a store of files."""

    def __init__(self, directory):
        python = named_python('NOVASCHED_GLANCE_PYTHON', 'Glance')

        home = directory / 'glance'
        (home / 'store').mkdir(parents=True)
        paste = home / 'paste.ini'
        policy = home / 'policy.yaml'
        paste.write_text(GLANCE_PASTE)
        policy.write_text(''.join(f'{name}: ""\n' for name in GLANCE_RULES))

        store = {'default_store': 'file', 'filesystem_store_datadir': home / 'store'}
        config = write_config(
            home / 'glance-api.conf',
            {
                'database': {'connection': f'sqlite:///{home}/glance.sqlite'},
                'glance_store': {'stores': 'file', **store},
                'oslo_policy': {'policy_file': policy},
                'paste_deploy': {'config_file': paste},
            },
        )

        manage = python.with_name('glance-manage')
        run([str(manage), '--config-file', str(config), 'db_sync'])
        environment = {'OS_GLANCE_CONFIG_DIR': str(home), 'PYTHONWARNINGS': 'ignore'}
        super().__init__(python, 'glance.wsgi.api', directory, environment)

    def add_image(self, name, **properties):
        """Add a small public image with the properties; the UUID of the image."""
        usual = {
            'disk_format': 'raw',
            'container_format': 'bare',
            'visibility': 'public',
        }
        images = f'{self.url}/v2/images'
        body = {'name': name, **usual, **properties}
        response = requests.post(images, json=body, timeout=60)
        response.raise_for_status()
        uuid: str = response.json()['id']

        binary = {'Content-Type': 'application/octet-stream'}
        file = f'{images}/{uuid}/file'
        response = requests.put(file, data=bytes(512), headers=binary, timeout=60)
        response.raise_for_status()
        return uuid


class NetworkService(HttpStub):
    """A Neutron without any resources, which is enough for servers without networks."""

    def reply(self, method, path, headers, body):
        """Answer with an empty list: ``GET /v2.0/ports.json`` with ``{"ports": []}``,
        and every other noun likewise, except extensions."""
        noun = urlsplit(path).path.rpartition('/')[2].removesuffix('.json')
        resources = EXTENSIONS if noun == 'extensions' else []
        return 200, JSON, json.dumps({noun.replace('-', '_'): resources}).encode()


class NovaServices:
    """nova's API, a conductor, and computes with a fake driver, in one cloud.

    :param computes: name of a compute to its options beside the common options.
    """

    def __init__(self, cloud, config, computes):
        self._cloud = cloud
        self._config = {**config, 'database': {'connection': cloud.cells['cell1'].url}}

        # The API has no option for its configuration files, only for a directory.
        directory = cloud.directory / 'api'
        directory.mkdir()
        cloud.config('api', self._config).rename(directory / 'nova.conf')
        (directory / 'api-paste.ini').write_text(NOVA_PASTE)
        environment = {**ENVIRONMENT, 'OS_NOVA_CONFIG_DIR': str(directory)}
        module = 'nova.wsgi.osapi_compute'
        self.api = WebService(cloud.nova.python, module, cloud.directory, environment)

        conductor = {**self._config, 'conductor': {'workers': 1}}
        script = [cloud.nova.script('nova-conductor')]
        self._conductor = self._service(script, 'conductor', conductor)

        self.computes: dict[str, Service] = {}
        usual = merged(self._config, {'DEFAULT': {'compute_driver': DRIVER}})
        script = [str(cloud.nova.python), str(COMPUTE)]
        for host, options in computes.items():
            self.computes[host] = self._service(script, host, merged(usual, options))

    def _service(self, script, host, config):
        home = self._cloud.directory / host
        home.mkdir()
        default = {'state_path': home, **config.get('DEFAULT', {})}
        path = self._cloud.config(host, {**config, 'DEFAULT': default})
        command = [*script, '--config-file', str(path)]
        return Service(command, home.with_suffix('.log'), ENVIRONMENT)

    def start(self, stack):
        """Start the services; the stack kills them at its end. Returns when the API
        serves."""
        for service in (self._conductor, *self.computes.values(), self.api):
            stack.callback(service.kill)
            service.start()

    def discover_hosts(self):
        config = self._cloud.config('discovery', self._config)
        self._cloud.nova.manage(config, 'cell_v2', 'discover_hosts')
