# SPDX-License-Identifier: Apache-2.0
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from novasched.conf import loading
from novasched.conf.errors import ConfigError
from novasched.conf.settings import Address
from novasched.observe.web import wiring
from novasched.observe.web.wiring import metrics_files
from tests.lab.processes import free_port

BIND = 'metrics_bind = 127.0.0.1:9105\n'


def loaded(tmp_path, lines):
    path = tmp_path / 'nova.conf'
    path.write_text(f'[novasched]\n{lines}')
    conf = loading.load([f'--config-file={path}'], 'novasched')
    return conf, loading.settings(conf), loading.service_settings(conf)


def test_who_has_the_page(tmp_path):
    for lines in ('', BIND, f'{BIND}page = false'):
        assert wiring.page_factory(*loaded(tmp_path, lines)) is None
    assert wiring.page_factory(*loaded(tmp_path, f'{BIND}page = true')) is not None
    with pytest.raises(ConfigError, match=r'^\[novasched\] page = True: .*metrics_bind'):
        wiring.page_factory(*loaded(tmp_path, 'page = true'))


OFF = """
import sys
import novasched.cmd.novasched
import novasched.service.build
from novasched.conf import loading
service = loading.service_settings(loading.load([], 'novasched'))
assert service.tracing_endpoint is None
unused = ('prometheus_client', 'waitress', 'novasched.observe.page', 'opentelemetry', 'google.protobuf')
print(*(name for name in sys.modules if name.startswith(unused)))
"""


def test_nothing_is_imported_unless_it_is_wanted():
    """A daemon without metrics, page and traces has neither their libraries nor their code."""
    done = subprocess.run([sys.executable, '-c', OFF], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ''


@pytest.mark.parametrize(
    ('missing', 'option', 'extra'),
    [
        ('jinja2', 'page = True', 'page'),
        ('prometheus_client', 'metrics_bind = 127.0.0.1:9105', 'metrics'),
        ('waitress', 'metrics_bind = 127.0.0.1:9105', 'metrics'),
    ],
)
def test_a_missing_library(tmp_path, monkeypatch, missing, option, extra):
    """It stops the start with one line that says how to get it."""
    conf, settings, service = loaded(tmp_path, f'{BIND}page = true')
    monkeypatch.setitem(sys.modules, missing, None)
    why = f'[novasched] {option}: {missing} is not installed: pip install novasched[{extra}]'

    def begin():
        wiring.page_factory(conf, settings, service)
        with metrics_files(service.metrics_bind):
            pass

    with pytest.raises(ConfigError, match=f'^{re.escape(why)}$'):
        begin()


def test_the_directory(monkeypatch):
    """It is there for us alone, as long as the master is; without an address there is none."""
    with metrics_files(None) as files:
        assert files is None
    monkeypatch.setenv('PROMETHEUS_MULTIPROC_DIR', '')
    with metrics_files(Address('127.0.0.1', free_port())) as files:
        directory = Path(files.directory)
        assert os.environ['PROMETHEUS_MULTIPROC_DIR'] == files.directory
        assert directory.stat().st_mode & 0o777 == 0o700
        files.worker_ended(0)
    assert not directory.exists()
