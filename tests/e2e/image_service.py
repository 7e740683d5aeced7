# SPDX-License-Identifier: Apache-2.0
"""Glance without keystone: whoever asks is admin."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
import requests

from tests.lab.nova_release import write_config
from tests.lab.processes import Failed

from .web_service import WebService

PYTHON_VARIABLE = 'NOVASCHED_GLANCE_PYTHON'

PASTE = """\
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

# Who has no token has no role either, so the rules ask for none.
ALLOWED = ('add_image', 'publicize_image', 'upload_image', 'get_images', 'get_image')


class ImageService:
    """Glance with an SQLite database and a store of files."""

    def __init__(self, directory: Path) -> None:
        named = os.environ.get(PYTHON_VARIABLE)
        if not named or not Path(named).exists():
            pytest.exit(
                f"these tests need Glance: set {PYTHON_VARIABLE} to its virtualenv's python", 3
            )
        python = Path(named).absolute()
        home = directory / 'glance'
        store = home / 'store'
        store.mkdir(parents=True)
        paste = home / 'paste.ini'
        paste.write_text(PASTE)
        policy = home / 'policy.yaml'
        policy.write_text(''.join(f'{name}: ""\n' for name in ALLOWED))
        self._config = write_config(
            home / 'glance-api.conf',
            {
                'database': {'connection': f'sqlite:///{home}/glance.sqlite'},
                'glance_store': {
                    'stores': 'file',
                    'default_store': 'file',
                    'filesystem_store_datadir': store,
                },
                'oslo_policy': {'policy_file': policy},
                'paste_deploy': {'config_file': paste},
            },
        )
        self._manage = python.with_name('glance-manage')
        environment = {'OS_GLANCE_CONFIG_DIR': str(home), 'PYTHONWARNINGS': 'ignore'}
        self._service = WebService(python, 'glance.wsgi.api', directory, environment)
        self.url = self._service.url

    def start(self) -> None:
        """Make the database, then serve."""
        command = [str(self._manage), '--config-file', str(self._config), 'db_sync']
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        if done.returncode:
            raise Failed(f'{command} ended with {done.returncode}:\n{done.stderr}')
        self._service.start()

    def close(self) -> None:
        self._service.close()

    def add_image(self, name: str, **properties: str) -> str:
        """A small public image with these properties; its UUID."""
        body = {
            'name': name,
            'disk_format': 'raw',
            'container_format': 'bare',
            'visibility': 'public',
            **properties,
        }
        made = requests.post(f'{self.url}/v2/images', json=body, timeout=60)
        made.raise_for_status()
        uuid: str = made.json()['id']
        uploaded = requests.put(
            f'{self.url}/v2/images/{uuid}/file',
            data=bytes(512),
            headers={'Content-Type': 'application/octet-stream'},
            timeout=60,
        )
        uploaded.raise_for_status()
        return uuid
