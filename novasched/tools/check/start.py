# SPDX-License-Identifier: Apache-2.0
"""A dry start: the steps of the daemon's start that change the process or take an
address, by the daemon's own functions, without a lasting effect.

Logging and the Guru Meditation Report change the whole process, so that a child process
takes these steps.
"""

import contextlib
import logging
import os
import tempfile
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from oslo_config import cfg

from novasched.concurrency.child import ChildFailed, in_child
from novasched.conf import loading, logs
from novasched.conf.errors import ConfigError, NovaschedError
from novasched.conf.settings import Address, SocketFile
from novasched.observe.health import service as health_service
from novasched.observe.web import wiring
from novasched.service import build, runtime
from novasched.tools import health
from novasched.tools.check.findings import Finding, Level
from novasched.tools.check.options import NovaConf

Findings = Iterator[Finding]

DAEMON_LOG = 'novasched.log'
"""Name of the log file in ``log_dir``. oslo.log takes the name of the program, which is
another name here."""
METRIC_PREFIX = b'# HELP novasched_'
HTTP_TIMEOUT_S = 5.0
STEPS = (logs.set_up, runtime.report_on_signal)
"""Steps that change the whole process; each raises ConfigError."""


def check_process(conf: cfg.ConfigOpts, seconds: float) -> Findings:
    """Set up logging and the report like the daemon, in a child process. To be called
    while the process has one thread.

    :param seconds: how long the child process may take.
    """
    try:
        errors = in_child(lambda: _take_steps(conf), seconds)
    except ChildFailed as error:
        yield Finding(Level.ERROR, 'log', f'cannot be set up: {error}')
        return
    for option, text in errors:
        yield Finding(Level.ERROR, option, text)
    if not errors:
        yield Finding(Level.OK, 'log', 'can be set up')


def _take_steps(conf: cfg.ConfigOpts) -> list[tuple[str, str]]:
    """Take all steps in this process; return option and text of each error."""
    # Lines belong neither into the report nor into the log of the daemon.
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):
        os.dup2(nowhere, stream)
    logging.disable()
    if conf.log_dir and not conf.log_file:
        conf.set_override('log_file', DAEMON_LOG)

    # The clock of files is behind the clock of time.time_ns().
    with tempfile.TemporaryFile() as mark:
        began = os.fstat(mark.fileno()).st_ctime_ns
    errors = []
    for step in STEPS:
        try:
            step(conf)
        except (NovaschedError, cfg.Error) as error:
            option = 'nova.conf'
            if isinstance(error, ConfigError):
                option = error.option
            errors.append((option, loading.refusal(conf, error)))
    _remove_new_files(began)
    return errors


def _remove_new_files(began: int) -> None:
    """Remove the log files that this process has created: the user of the check may not
    be the user of the daemon.

    :param began: when logging was set up, in nanoseconds.
    """
    handlers = list(logging.root.handlers)
    for name in logging.root.manager.loggerDict:
        handlers += logging.getLogger(name).handlers
    for handler in handlers:
        path = getattr(handler, 'baseFilename', None)
        if path is None:
            continue
        with contextlib.suppress(OSError):
            status = os.stat(path)
            if status.st_size == 0 and status.st_ctime_ns >= began:
                Path(path).unlink()


def check_parts(nova_conf: NovaConf) -> Findings:
    """Make the parts of a scheduler that need no server."""
    service = nova_conf.service
    for check in build.LOCAL_PARTS:
        try:
            check(nova_conf.conf, nova_conf.settings, service)
        except ConfigError as error:
            yield Finding(Level.ERROR, error.option, str(error))

    if build.has_neutron(nova_conf.conf):
        try:
            build.http_adapter(nova_conf.conf, 'neutron', service)
        except ConfigError as error:
            text = f'{error}. Requests that need Neutron will be refused'
            yield Finding(Level.WARNING, error.option, text)


def check_addresses(nova_conf: NovaConf) -> Findings:
    """Check the addresses of metrics and health. An address at which novasched already
    serves is in order: the check may run beside the daemon."""
    service = nova_conf.service
    if service.metrics_bind is not None:
        try:
            wiring.check_metrics(service.metrics_bind)
        except ConfigError as error:
            if not _has_our_metrics(service.metrics_bind):
                yield Finding(Level.ERROR, error.option, str(error))

    if service.health_bind is not None:
        try:
            health_service.check_address(service.health_bind)
        except ConfigError as error:
            if _has_our_health(service.health_bind, service.host):
                return
            level = Level.NOTE
            text = f'{error}. Health will not be served'
            if health_service.is_set_by_operator(nova_conf.conf):
                level = Level.ERROR
                text = str(error)
            yield Finding(level, error.option, text)


def _has_our_metrics(address: Address) -> bool:
    """True if a novasched serves its metrics at the address."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        url = f'http://{address}/metrics'
        with opener.open(url, timeout=HTTP_TIMEOUT_S) as answer:
            return METRIC_PREFIX in answer.read()
    except (OSError, ValueError):
        return False


def _has_our_health(address: Address | SocketFile, host: str) -> bool:
    """True if the novasched of a host serves its health at the address."""
    try:
        answer = health.ask(address, '/health')
    except NovaschedError:
        return False
    return bool(answer.get('notes', {}).get('host') == host)
