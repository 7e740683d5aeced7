# SPDX-License-Identifier: Apache-2.0
"""Serve a module's WSGI application on loopback; run by the Python that has the module.

    python serve_wsgi.py MODULE PORT

The services know no other way to run than inside a WSGI server.
"""

import importlib
import sys


def main():
    """Load the application, then say so in one line, and serve for ever."""
    module, port = sys.argv[1:]
    # What is served parses the command line, and finds no module of the tests'
    # directory.
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
