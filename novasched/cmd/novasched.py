# SPDX-License-Identifier: Apache-2.0
"""The daemon's entry point: ``novasched --config-file /etc/nova/nova.conf``."""

from __future__ import annotations

import importlib.metadata
import sys
from collections.abc import Sequence

from oslo_config import cfg
from oslo_log import log as logging

from novasched import conf as configuration
from novasched import logs, service
from novasched.errors import NovaschedError

LOG = logging.getLogger('nova.scheduler')
NAME = 'novasched'


def main(argv: Sequence[str] | None = None) -> int:
    """Run the daemon; whatever an operator must mend ends it with one line and 1."""
    conf, logged = None, False
    try:
        version = importlib.metadata.version(NAME)
        conf = configuration.load(sys.argv[1:] if argv is None else argv, NAME, version)
        logging.setup(conf, configuration.PROJECT)
        logs.hide_secrets()
        logged = bool(conf.log_file or conf.log_dir)
        return service.run(conf)
    except (NovaschedError, cfg.Error) as error:
        refusal = configuration.refusal(conf, error)
    # Past the handler: in there, oslo.log adds the error in hand to what is logged.
    if logged:
        LOG.critical('%s', refusal)
    print(f'{NAME}: {refusal}', file=sys.stderr)
    return 1


if __name__ == '__main__':
    sys.exit(main())
