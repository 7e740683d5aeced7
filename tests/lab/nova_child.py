# SPDX-License-Identifier: Apache-2.0
"""Commands that a child process runs in nova's virtualenv, whichever release that is.

One JSON object a line: {"number", "command", "parameters"} comes in, {"number",
"answer"} or {"number", "error"} goes out. The only argument is the configuration file.
"""

import json
import os
import sys

from nova import config, exception, objects
from oslo_log import log as logging


def answer(commands, request):
    """Run one command. Whatever the far side raises is the answer, not our end."""
    try:
        return {
            'answer': getattr(commands, request['command'])(**request['parameters'])
        }
    except Exception as error:
        return {
            'error': {
                'error': type(error).__name__,
                'module': type(error).__module__,
                'isinstance_NoValidHost': isinstance(error, exception.NoValidHost),
                'message': str(error),
                'kwargs': getattr(error, 'kwargs', None),
                'exc_type': getattr(error, 'exc_type', None),
                'value': str(getattr(error, 'value', '')),
            }
        }


def serve(make):
    """Serve standard input until it ends; what is made has a method for each
    command."""
    # Nothing but answers may reach the pipe that standard output was.
    answers = os.fdopen(os.dup(1), 'w', buffering=1)
    os.dup2(2, 1)
    config.parse_args(['functional-client', '--config-file', sys.argv[1]])
    logging.setup(config.CONF, 'nova')
    objects.register_all()
    commands = make()
    print(json.dumps({'number': 0, 'answer': 'ready'}), file=answers)
    for line in sys.stdin:
        request = json.loads(line)
        reply = dict(answer(commands, request), number=request['number'])
        print(json.dumps(reply), file=answers)
