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
from novasched.conf.errors import ConfigError, NovaschedError
from novasched.conf.redaction import hide
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
        _set_up_logging(conf)
        logs.hide_secrets()
        has_log_file = bool(conf.log_file or conf.log_dir)
        return daemon.run(conf)
    except (NovaschedError, cfg.Error, RecursionError) as error:
        refusal = loading.refusal(conf, error)

    # Outside of the handler: inside, oslo.log would add the error to the message.
    if has_log_file:
        LOG.critical('%s', refusal)
    print(f'{DAEMON_NAME}: {refusal}', file=sys.stderr)
    return 1


def _set_up_logging(conf: cfg.ConfigOpts) -> None:
    """Set up logging by the options of oslo.log.

    :raises ConfigError: the value of an option is invalid.
    """
    # oslo.log checks its options only here, with a different error for each option.
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
