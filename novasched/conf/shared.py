# SPDX-License-Identifier: Apache-2.0
"""oslo.config's global CONF, which nothing here reads: out-of-tree plugins do."""

from __future__ import annotations

import contextlib
import importlib

from oslo_config import cfg

from novasched import conf as configuration
from novasched.compat import standins

EAGER = ('nova.conf', 'nova.scheduler.utils')
"""What declares a real nova's options, and what its filters import (for seconds) when they
judge their first host."""


def share(conf: cfg.ConfigOpts) -> None:
    """Let the global CONF read the files that ``conf`` has read.

    It knows nova's options too, as in a nova service: by a real nova, if there is one, or
    else those declared here. They have to be there first, since some are for the command
    line, and those cannot be added later.
    """
    standins.install()
    cfg.CONF.clear()
    if standins.nova_is_installed():
        for module in EAGER:
            with contextlib.suppress(ImportError):  # then the plugin cannot import it either
                importlib.import_module(module)
    else:
        configuration.register(cfg.CONF)
    cfg.CONF(
        [],
        project=configuration.PROJECT,
        default_config_files=conf.config_file or [],
        default_config_dirs=conf.config_dir or [],
    )
