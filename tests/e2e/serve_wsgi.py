# SPDX-License-Identifier: Apache-2.0
"""Serve a module's WSGI application on loopback, with the Python that has the module.

    python serve_wsgi.py MODULE PORT

The services run only inside a WSGI server.
"""

import importlib
import sys


def main():
    """Load the application, print one line when it is ready, and serve for ever."""
    module, port = sys.argv[1:]

    # The application parses the command line, and must not find modules in the
    # directory of the tests.
    del sys.argv[1:], sys.path[0]
    application = importlib.import_module(module).application

    import waitress

    server = waitress.create_server(
        application, host='127.0.0.1', port=int(port), threads=8
    )
    print(f'serving {module}', flush=True)
    server.run()


if __name__ == '__main__':
    main()
