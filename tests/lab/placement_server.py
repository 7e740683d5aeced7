# SPDX-License-Identifier: Apache-2.0
"""The Placement of the sandbox as a program, until SIGTERM or SIGINT.

The URL of the database may have a password, and is in the environment.
"""

import argparse
import logging
import os
import signal
import sys
import threading

from novasched.service.runtime import share_modules
from novasched.tools.sandbox.placement import serving


def main():
    """Run in the foreground, and print a line when Placement is ready."""
    parser = argparse.ArgumentParser(description='Run Placement on loopback.')
    parser.add_argument('--port', type=int, required=True)
    parser.add_argument('--token', required=True, help='the one token that is accepted')
    parser.add_argument('--log-level', default='WARNING')
    arguments = parser.parse_args()
    logging.basicConfig(level=arguments.log_level.upper(), stream=sys.stderr)
    stopped = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopped.set())
    connection = os.environ['NOVASCHED_PLACEMENT_CONNECTION']
    with serving(connection, arguments.token, arguments.port) as url:
        # The modules stay: a garbage collection of all modules would take 0.2 s.
        share_modules()
        print(f'listening on {url}', flush=True)
        stopped.wait()


if __name__ == '__main__':
    main()
