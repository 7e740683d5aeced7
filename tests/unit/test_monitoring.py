# SPDX-License-Identifier: Apache-2.0
import os
import sys
from pathlib import Path

import pytest

from novasched.conf.address import Address
from novasched.errors import ConfigError
from novasched.monitoring import NEEDED, monitoring
from tests.functional.processes import free_port

HERE = Address('127.0.0.1', 9101)


def test_off():
    """Without an address there is nothing."""
    with monitoring(None) as watch:
        assert watch is None


@pytest.mark.parametrize('missing', NEEDED)
def test_a_missing_library(missing, monkeypatch):
    """It stops the start with one line that says how to get it."""
    monkeypatch.setitem(sys.modules, missing, None)
    why = rf'\[novasched\] metrics_bind = {HERE}: {missing} is not installed: pip install novasched\[metrics\]'
    with pytest.raises(ConfigError, match=why), monitoring(HERE):
        pass


def test_the_directory(monkeypatch):
    """It is there for us alone, as long as the master is."""
    monkeypatch.setenv('PROMETHEUS_MULTIPROC_DIR', '')
    with monitoring(Address('127.0.0.1', free_port())) as watch:
        directory = Path(watch.directory)
        assert os.environ['PROMETHEUS_MULTIPROC_DIR'] == watch.directory
        assert directory.stat().st_mode & 0o777 == 0o700
        watch.ended(0)
    assert not directory.exists()
