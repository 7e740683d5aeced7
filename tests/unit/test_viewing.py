# SPDX-License-Identifier: Apache-2.0
import importlib.util
import subprocess
import sys

import pytest

from novasched import conf as configuration
from novasched import viewing
from novasched.errors import ConfigError

BIND = 'metrics_bind = 127.0.0.1:9105\n'


def loaded(tmp_path, lines):
    path = tmp_path / 'nova.conf'
    path.write_text(f'[novasched]\n{lines}')
    return configuration.load([f'--config-file={path}'], 'novasched')


@pytest.mark.parametrize(
    ('lines', 'wanted'), [('', False), (BIND, False), (f'{BIND}page = false', False), (f'{BIND}page = true', True)]
)  # fmt: skip
def test_who_has_the_page(tmp_path, lines, wanted):
    """Who asks for it, and nobody else."""
    assert (viewing.page_of(loaded(tmp_path, lines)) is not None) is wanted


def test_a_page_with_nowhere_to_be(tmp_path):
    """One line says what is missing."""
    with pytest.raises(ConfigError, match=r'^\[novasched\] page = True: .*metrics_bind'):
        viewing.page_of(loaded(tmp_path, 'page = true'))


def test_a_package_that_is_missing(tmp_path, monkeypatch):
    """One line says how to install it; who does without the page does without it."""
    monkeypatch.setattr(importlib.util, 'find_spec', lambda name: None)
    with pytest.raises(
        ConfigError, match=r'jinja2 is not installed: pip install novasched\[page\]'
    ):
        viewing.page_of(loaded(tmp_path, f'{BIND}page = true'))
    assert viewing.page_of(loaded(tmp_path, BIND)) is None


@pytest.mark.parametrize('name', ['page', 'page_remote'])
def test_neither_true_nor_false(tmp_path, name):
    """One line names the option and its value."""
    conf = loaded(tmp_path, f'{BIND}{name} = perhaps')
    with pytest.raises(ConfigError, match=rf'^\[novasched\] {name} = perhaps: '):
        getattr(configuration, name)(conf)


def test_nothing_is_imported_unless_it_is_wanted():
    """Who does without the page does without its code."""
    program = (
        "import sys; import novasched.cmd.novasched; sys.exit('novasched.page' in sys.modules)"
    )
    assert subprocess.run([sys.executable, '-c', program], timeout=120).returncode == 0
