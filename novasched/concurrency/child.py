# SPDX-License-Identifier: Apache-2.0
"""A function in a child process: work that may hang, exit, or change the process."""

import json
import os
import select
import signal
from collections.abc import Callable
from typing import Any, NoReturn

from novasched.conf.redaction import hide


class ChildFailed(Exception):
    """The child process gave no answer; the text tells why."""


def in_child(work: Callable[[], Any], seconds: float) -> Any:
    """Run a function in a child process, and return its answer as JSON carries it.

    :param seconds: how long the function may take.
    :raises ChildFailed: the function raised an error, or took longer.
    """
    read_end, write_end = os.pipe()
    child = os.fork()
    if not child:
        os.close(read_end)
        _answer(work, write_end)
    os.close(write_end)

    with open(read_end, 'rb') as reader:
        ready, _, _ = select.select([reader], [], [], seconds)
        if not ready:
            os.kill(child, signal.SIGKILL)
        answer = reader.read()
    _, status = os.waitpid(child, 0)
    if not ready:
        raise ChildFailed(f'no answer within {seconds:g} s')
    if not answer:
        code = os.waitstatus_to_exitcode(status)
        raise ChildFailed(f'the process ended early, with status {code}')
    result, error = json.loads(answer)
    if error is not None:
        raise ChildFailed(error)
    return result


def _answer(work: Callable[[], Any], write_end: int) -> NoReturn:
    """Write the result of the function, or its error, to a pipe, and exit."""
    try:
        result = None
        error = None
        try:
            result = work()
        except Exception as failure:
            error = f'{type(failure).__name__}: {hide(failure)}'
        with open(write_end, 'w') as writer:
            json.dump([result, error], writer)
    finally:
        # Without the exit handlers of the parent process.
        os._exit(0)
