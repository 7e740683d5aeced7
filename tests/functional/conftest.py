# SPDX-License-Identifier: Apache-2.0
"""The servers, the cloud and the client that all functional tests share."""

from tests.lab.daemon import Daemon
from tests.lab.fixtures import (
    client,
    cloud,
    directory,
    mariadb,
    nothing_is_told,
    nova,
    placement,
    rabbitmq,
)

__all__ = [
    'client',
    'cloud',
    'directory',
    'mariadb',
    'nothing_is_told',
    'nova',
    'placement',
    'rabbitmq',
]  # fmt: skip

Daemon.forked = True
