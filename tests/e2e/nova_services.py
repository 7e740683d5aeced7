# SPDX-License-Identifier: Apache-2.0
"""nova's own services but the scheduler: the API, a conductor, computes with a fake driver."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

from tests.lab.nova_cloud import NovaCloud
from tests.lab.nova_release import ENVIRONMENT, Config
from tests.lab.processes import Process

from .web_service import WebService

DRIVER = 'fake.FakeDriverWithoutFakeNodes'
"""The one whose node keeps its UUID when its nova-compute is started again."""

PASTE = """\
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
"""Without authtoken: the headers that keystone's middleware would set are believed."""


class NovaService:
    def __init__(self, cloud: NovaCloud, script: str, host: str, overrides: Config) -> None:
        home = cloud.directory / host
        home.mkdir()
        default = {'state_path': home, **overrides.get('DEFAULT', {})}
        self.host = host
        config = cloud.config(host, {**overrides, 'DEFAULT': default})
        self._command = [cloud.nova.script(script), '--config-file', str(config)]
        self._log = cloud.directory / f'{host}.log'
        self._process: Process | None = None

    def launch(self) -> None:
        self._process = Process(self._command, self._log, env={**os.environ, **ENVIRONMENT})

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()


class NovaServices:
    """All of them, on one cloud.

    :param computes: the computes' names, and what each is told beside the common part.
    """

    def __init__(self, cloud: NovaCloud, config: Config, computes: Mapping[str, Config]) -> None:
        self._cloud = cloud
        self._config = {**config, 'database': {'connection': cloud.cells['cell1'].url}}
        environment = {**ENVIRONMENT, 'OS_NOVA_CONFIG_DIR': str(self._api_directory())}
        python = cloud.nova.python
        self.api = WebService(python, 'nova.wsgi.osapi_compute', cloud.directory, environment)
        conductor = {**self._config, 'conductor': {'workers': 1}}
        self._conductor = NovaService(cloud, 'nova-conductor', 'conductor', conductor)
        self.computes: dict[str, NovaService] = {}
        for host, own in computes.items():
            default = {**config['DEFAULT'], 'compute_driver': DRIVER, **own.get('DEFAULT', {})}
            compute = {**self._config, **own, 'DEFAULT': default}
            self.computes[host] = NovaService(cloud, 'nova-compute', host, compute)

    def _api_directory(self) -> Path:
        """The API has no option for its configuration files, but a directory."""
        directory = self._cloud.directory / 'api'
        directory.mkdir()
        self._cloud.config('api', self._config).rename(directory / 'nova.conf')
        (directory / 'api-paste.ini').write_text(PASTE)
        return directory

    def start(self, stack: ExitStack) -> None:
        """Start them; the stack ends them. Returns when the API serves."""
        for service in (self._conductor, *self.computes.values()):
            stack.callback(service.kill)
            service.launch()
        stack.callback(self.api.close)
        self.api.start()

    def discover_hosts(self) -> None:
        config = self._cloud.config('discovery', self._config)
        self._cloud.nova.manage(config, 'cell_v2', 'discover_hosts')
