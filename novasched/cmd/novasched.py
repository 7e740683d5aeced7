# SPDX-License-Identifier: Apache-2.0
"""The daemon's entry point: ``novasched --config-file /etc/nova/nova.conf``."""

import sys
from collections.abc import Sequence

# This import comes first. It chooses the threads with which the libraries below are
# imported, and hides eventlet from them: oslo.log before 8.3, the newest for Python
# 3.10, imports eventlet where it is installed.
import novasched.concurrency  # noqa: F401

# isort: split
from oslo_config import cfg
from oslo_log import log as logging

from novasched.conf import loading, logs
from novasched.conf.errors import ConfigError, NovaschedError
from novasched.conf.redaction import hide
from novasched.service import daemon, runtime

LOG = logging.getLogger('nova.scheduler')
DAEMON_NAME = 'novasched'


def main(argv: Sequence[str] | None = None) -> int:
    """Run the daemon; whatever an operator must mend ends it with one line and 1."""
    conf = None
    logged = False
    try:
        args = sys.argv[1:] if argv is None else argv
        conf = loading.load(args, DAEMON_NAME, runtime.version())
        _begin_to_log(conf)
        logs.hide_secrets()
        logged = bool(conf.log_file or conf.log_dir)
        return daemon.run(conf)
    except (NovaschedError, cfg.Error, RecursionError) as error:
        refusal = loading.refusal(conf, error)
    # Past the handler: in there, oslo.log adds the error in hand to what is logged.
    if logged:
        LOG.critical('%s', refusal)
    print(f'{DAEMON_NAME}: {refusal}', file=sys.stderr)
    return 1


def _begin_to_log(conf: cfg.ConfigOpts) -> None:
    """Log as nova.conf wants it. oslo.log looks at its options when it uses them.

    :raises ConfigError: an option's value is not valid.
    """
    try:
        logging.setup(conf, loading.PROJECT)
    except logging.LogConfigError as error:
        name = 'log_config_append'
        value = conf.log_config_append
        why = hide(error.err_msg)
    except OSError as error:
        name = 'log_file'
        value = error.filename
        why = error.strerror or ''
    except TypeError as error:
        name = 'syslog_log_facility'
        value = conf.syslog_log_facility
        why = str(error)
    except ValueError as error:
        name = 'default_log_levels'
        value = ','.join(conf.default_log_levels)
        why = str(error)
    else:
        return
    raise ConfigError(f'[DEFAULT] {name}', value, why)


if __name__ == '__main__':
    sys.exit(main())
