# SPDX-License-Identifier: Apache-2.0
"""Options have the default values that nova-scheduler gives them."""

import json
import sys

from tests.lab.nova_release import run

NOVAS = """
import os, sys
from nova import config, rpc
from nova.conf import CONF as conf
from oslo_reports import opts
config.parse_args(['nova-scheduler', '--config-file', os.devnull], configure_db=False, init_rpc=False)
opts.set_defaults(conf)
rpc.init(conf)
"""
OURS = """
import os, sys
from novasched.conf.loading import load
from novasched.rpc.server import make_transport
conf = load(['--config-file', os.devnull], 'novasched')
make_transport(conf)
"""
SHOW = """
import json
from oslo_config import cfg
groups = {name: conf[name] for name in conf}
values = {'DEFAULT': {name: value for name, value in groups.items()
                      if not isinstance(value, cfg.ConfigOpts.GroupAttr)}}
values.update((name, dict(group)) for name, group in groups.items() if name not in values['DEFAULT'])
print(json.dumps(values, default=str))
"""

DIFFERENT = {
    ('DEFAULT', 'default_log_levels'): 'nova adds libraries that nothing here imports',
    ('DEFAULT', 'host'): "the machine's name as well, but looked up when it is needed",
    (
        'DEFAULT',
        'pybasedir',
    ): "nova's is the folder of its Python package, and there may be none",
    ('DEFAULT', 'state_path'): "that of packages; nova's is pybasedir",
    ('neutron', 'timeout'): 'a Neutron that hangs would hold requests without end',
    ('oslo_messaging_rabbit', 'rabbit_qos_prefetch_count'): (
        'what waits stays where other schedulers can have it'
    ),
    ('placement', 'timeout'): 'a Placement that hangs would hold requests without end',
    ('scheduler', 'workers'): (
        'one, where nova takes one for each processor: a worker has many threads, and does not '
        'know what another one has chosen'
    ),
}
"""Options whose default differs from nova's, and the reason."""


def options(output):
    """The values of options in the last line of a process's output: group and name to
    value."""
    values = {}
    for group, values_by_name in json.loads(output.splitlines()[-1]).items():
        for name, value in values_by_name.items():
            values[group, name] = value
    return values


def test_options_have_the_defaults_of_nova(nova):
    """With an empty nova.conf all defaults are nova's, except the options of
    :data:`DIFFERENT`. The defaults of these options indeed differ."""
    novas = options(run([str(nova.python), '-c', NOVAS + SHOW]))
    ours = options(run([sys.executable, '-c', OURS + SHOW]))
    in_both = novas.keys() & ours.keys()
    assert len(in_both) > 200

    different = {}
    for option in in_both:
        if ours[option] != novas[option]:
            different[option] = (ours[option], novas[option])
    unexpected = different.keys() - DIFFERENT.keys()
    assert {option: different[option] for option in unexpected} == {}
    assert DIFFERENT.keys() - different.keys() == set()


PLUGINS = """
import os, sys
from oslo_config import cfg
from novasched.conf.loading import load
from novasched.plugins.nova_compat.import_stubs import share_options
share_options(load(['--config-file', os.devnull], 'novasched'))
conf = cfg.CONF
"""
PATHS = """
conf.set_override('state_path', '/state')
conf.set_override('pybasedir', '/python')
"""
LIBRARIES = ('oslo_', 'cache', 'profiler')
"""Begins of the groups whose options libraries declare."""
FOR_PLUGINS = {
    ('DEFAULT', 'bindir'): 'the folder of a program that need not be installed',
    ('DEFAULT', 'console_host'): 'the name of a machine',
}
"""Further options whose default for plugins differs from nova's, and the reason."""


def test_plugins_read_options_of_nova(nova):
    """Plugins without nova read each option that nova declares, with nova's default."""
    novas = options(run([str(nova.python), '-c', NOVAS + PATHS + SHOW]))
    for_plugins = options(run([sys.executable, '-c', PLUGINS + PATHS + SHOW]))
    ours = options(run([sys.executable, '-c', OURS + SHOW]))
    missing = []
    different = {}
    for option in novas.keys() - ours.keys():
        if option[0].startswith(LIBRARIES):
            continue
        if option not in for_plugins:
            missing.append(option)
        elif for_plugins[option] != novas[option] and option not in FOR_PLUGINS:
            different[option] = (for_plugins[option], novas[option])
    assert missing == []
    assert different == {}
