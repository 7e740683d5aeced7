# SPDX-License-Identifier: Apache-2.0
import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from novasched.conf import loading
from novasched.conf.errors import ConfigError
from novasched.conf.settings import Address
from novasched.observe.web import wiring
from novasched.observe.web.wiring import EXTRAS, metrics_files
from tests.lab.processes import free_port

BIND = 'metrics_bind = 127.0.0.1:9105\n'


def loaded(tmp_path, lines):
    path = tmp_path / 'nova.conf'
    path.write_text(f'[novasched]\n{lines}')
    conf = loading.load([f'--config-file={path}'], 'novasched')
    return conf, loading.settings(conf), loading.service_settings(conf)


@pytest.mark.parametrize(
    ('lines', 'wanted'), [('', False), (BIND, False), (f'{BIND}page = false', False), (f'{BIND}page = true', True)]
)  # fmt: skip
def test_who_has_the_page(tmp_path, lines, wanted):
    assert (wiring.page_factory(*loaded(tmp_path, lines)) is not None) is wanted


def test_a_page_with_nowhere_to_be(tmp_path):
    with pytest.raises(ConfigError, match=r'^\[novasched\] page = True: .*metrics_bind'):
        wiring.page_factory(*loaded(tmp_path, 'page = true'))


def test_a_package_that_is_missing(tmp_path, monkeypatch):
    """One line says how to install it; who does without the page does without it."""
    monkeypatch.setattr(importlib.util, 'find_spec', lambda name: None)
    with pytest.raises(
        ConfigError, match=r'jinja2 is not installed: pip install novasched\[page\]'
    ):
        wiring.page_factory(*loaded(tmp_path, f'{BIND}page = true'))
    assert wiring.page_factory(*loaded(tmp_path, BIND)) is None


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


ADDRESS = Address('127.0.0.1', 9101)


def test_no_metrics():
    with metrics_files(None) as files:
        assert files is None


@pytest.mark.parametrize('missing', EXTRAS['metrics'])
def test_a_missing_library(missing, monkeypatch):
    """It stops the start with one line that says how to get it."""
    monkeypatch.setitem(sys.modules, missing, None)
    why = rf'\[novasched\] metrics_bind = {ADDRESS}: {missing} is not installed: pip install novasched\[metrics\]'
    with pytest.raises(ConfigError, match=why), metrics_files(ADDRESS):
        pass


def test_the_directory(monkeypatch):
    """It is there for us alone, as long as the master is."""
    monkeypatch.setenv('PROMETHEUS_MULTIPROC_DIR', '')
    with metrics_files(Address('127.0.0.1', free_port())) as files:
        directory = Path(files.directory)
        assert os.environ['PROMETHEUS_MULTIPROC_DIR'] == files.directory
        assert directory.stat().st_mode & 0o777 == 0o700
        files.worker_ended(0)
    assert not directory.exists()
