# SPDX-License-Identifier: Apache-2.0
"""Commands in a child process in the virtualenv of any release of nova.

One JSON object a line: {"number", "command", "parameters"} comes in, {"number",
"answer"} or {"number", "error"} goes out. The only argument is the configuration file.
"""

import json
import os
import sys

from nova import config, exception, objects
from oslo_log import log as logging


def answer(commands, request):
    """The reply to a command. An error is a reply, too."""
    try:
        command = getattr(commands, request['command'])
        return {'answer': command(**request['parameters'])}
    except Exception as error:
        fields = {
            'error': type(error).__name__,
            'module': type(error).__module__,
            'isinstance_NoValidHost': isinstance(error, exception.NoValidHost),
            'message': str(error),
            'kwargs': getattr(error, 'kwargs', None),
            'exc_type': getattr(error, 'exc_type', None),
            'value': str(getattr(error, 'value', '')),
        }
        return {'error': fields}


def serve(make):
    """Serve the commands on standard input.

    :param make: makes an object with a method for each command.
    """
    # Answers alone go to the pipe. Other output goes to standard error.
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
