# SPDX-License-Identifier: Apache-2.0
"""nova.conf, as plugins read it."""

import functools
from textwrap import dedent

from oslo_config import cfg

from novasched import conf as configuration
from novasched import plugins
from novasched.conf.shared import share

STYLE = 'tests.unit.plugins.nova_style'
FILE = f"""
    [filter_scheduler]
    available_filters = nova.scheduler.filters.all_filters
    available_filters = {STYLE}.RackFilter
    enabled_filters = RackFilter
    ram_weight_multiplier = 7.5
    [acme]
    rack = r7
"""


def test_plugins_read_the_files_that_the_daemon_has_read(tmp_path):
    """A plugin's own options, and nova's, have the values of nova.conf, wherever it looks."""
    path = tmp_path / 'nova.conf'
    path.write_text(dedent(FILE))
    conf = configuration.load(['--config-file', str(path)], 'novasched')
    prepare = functools.partial(share, conf)
    for _ in range(2):
        (plugin,) = plugins.filters(configuration.settings(conf), prepare)
        assert plugin.name == 'RackFilter'
        assert cfg.CONF.acme.rack == 'r7'
        assert cfg.CONF.filter_scheduler.ram_weight_multiplier == 7.5
        assert cfg.CONF.filter_scheduler.disk_weight_multiplier == 1.0
