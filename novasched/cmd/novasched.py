# SPDX-License-Identifier: Apache-2.0
"""Entry point of the daemon: ``novasched --config-file /etc/nova/nova.conf``."""

import sys
from collections.abc import Sequence

# This import must come first. It selects native threads before the libraries below are
# imported, and hides eventlet: oslo.log before 8.3, the newest release for Python 3.10,
# imports eventlet if installed.
import novasched.concurrency  # noqa: F401

# isort: split
from oslo_config import cfg
from oslo_log import log as logging

from novasched.conf import loading, logs
from novasched.conf.errors import NovaschedError
from novasched.service import daemon, runtime

LOG = logging.getLogger('nova.scheduler')
DAEMON_NAME = 'novasched'


def main(argv: Sequence[str] | None = None) -> int:
    """Run the daemon.

    An error that an operator must fix ends the daemon with a line on the standard error
    and the exit status 1.
    """
    if argv is None:
        argv = sys.argv[1:]
    conf = None
    has_log_file = False
    try:
        conf = loading.load(argv, DAEMON_NAME, runtime.version())
        logs.set_up(conf)
        has_log_file = bool(conf.log_file or conf.log_dir)
        return daemon.run(conf)
    except (NovaschedError, cfg.Error, RecursionError) as error:
        refusal = loading.refusal(conf, error)

    # Outside of the handler: inside, oslo.log would add the error to the message.
    if has_log_file:
        LOG.critical('%s', refusal)
    print(f'{DAEMON_NAME}: {refusal}', file=sys.stderr)
    return 1


if __name__ == '__main__':
    sys.exit(main())
