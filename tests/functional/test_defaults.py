# SPDX-License-Identifier: Apache-2.0
"""Options that are not set mean what they mean to nova-scheduler."""

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
values = {'DEFAULT': {name: each for name, each in groups.items()
                      if not isinstance(each, cfg.ConfigOpts.GroupAttr)}}
values.update((name, dict(each)) for name, each in groups.items() if name not in values['DEFAULT'])
print(json.dumps(values, default=str))
"""

OF_OUR_OWN = {
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
"""The options whose default is not nova's, and the reason."""


def options(output):
    """The values that a process has shown in the last line of its output."""
    groups = json.loads(output.splitlines()[-1])
    return {
        (group, name): value
        for group, each in groups.items()
        for name, value in each.items()
    }


def test_defaults_are_those_of_nova(nova):
    """With an empty nova.conf all are, but for the table's, and each of these differs
    indeed."""
    novas = options(run([str(nova.python), '-c', NOVAS + SHOW]))
    ours = options(run([sys.executable, '-c', OURS + SHOW]))
    both = novas.keys() & ours.keys()
    assert len(both) > 200
    different = {
        each: (ours[each], novas[each]) for each in both if ours[each] != novas[each]
    }
    assert {
        each: different[each] for each in different.keys() - OF_OUR_OWN.keys()
    } == {}
    assert OF_OUR_OWN.keys() - different.keys() == set()
