# SPDX-License-Identifier: Apache-2.0
"""The process as a whole: its memory, the name that it shows, and its report on a
signal."""

import contextlib
import ctypes
import functools
import gc
import importlib.metadata
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace

import setproctitle
from oslo_config import cfg
from oslo_reports import guru_meditation_report
from oslo_reports.generators.conf import ConfigReportGenerator

from novasched.conf.errors import ConfigError
from novasched.conf.redaction import redact

MALLOC_ARENAS = 2
M_ARENA_MAX = -8  # glibc's malloc.h
YOUNG_GENERATIONS = 1
"""The generations of objects that were made since others were looked through."""
YOUNG_OBJECTS = 100_000
"""Number of objects made before garbage is looked for among them."""
PROCESS_NAME = 'nova-scheduler'
PRODUCT = 'novasched'


def version() -> str:
    return importlib.metadata.version(PRODUCT)


def tune_malloc() -> None:
    """Let threads share heaps, where the C library is glibc. It gives each thread its
    own else, and what one thread has freed, such as an answer of some MB, no other can
    use."""
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).mallopt(M_ARENA_MAX, MALLOC_ARENAS)


def trim_heaps() -> None:
    """Look for garbage among young objects, and, with glibc, give the system back what
    is free between pieces in use: long texts of hosts and answers leave much that
    nothing else fits."""
    gc.collect(YOUNG_GENERATIONS)
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).malloc_trim(0)


def share_modules() -> None:
    """Let processes that are forked after this share what there is by now. The
    collector of cycles writes to each object that it looks at, and a page that is
    written to is copied."""
    gc.collect()
    gc.freeze()


def tune_gc() -> None:
    """Let the collector of cycles run rarely. A request makes many objects per host,
    which live as long as it does and have no cycles: looking through them costs a third
    of a decision over 20,000 hosts and finds nothing. What has cycles is mostly
    oslo.messaging's messages: a periodic task collects them everywhere, since what was
    in use when it was young would else be collected after hours, and keep pages until
    then."""
    gc.set_threshold(YOUNG_OBJECTS, 20, 20)


def set_process_title(role: str) -> None:
    """Show the process as nova-scheduler in a role.

    Health probes of kolla search command lines for that name. Those of openstack-helm
    compare it with the name of the process, which the system cuts off after 15
    characters of the title: with the colon, unless it is set by itself. For the main
    thread alone.
    """
    setproctitle.setproctitle(f'{PROCESS_NAME}: {role}')
    setproctitle.setthreadtitle(PROCESS_NAME)


class RedactedReport(guru_meditation_report.TextGuruMeditation):
    """The Guru Meditation Report: threads, processes, configuration and what a worker
    tells, without the secrets in options, be they declared secret or not."""

    def run(self) -> str:
        return redact(super().run())


def _section(lines: Callable[[], Sequence[str]]) -> str:
    return '\n'.join(lines()) or 'none'


def report_on_signal(
    conf: cfg.ConfigOpts,
    sections: Mapping[str, Callable[[], Sequence[str]]] | None = None,
) -> None:
    """Write the Guru Meditation Report on SIGUSR2, or when the file of ``[oslo_reports]
    file_event_handler`` is touched; to ``[oslo_reports] log_dir``, or else to the
    standard error. For the main thread, and again after a fork, which a watch on a file
    does not survive.

    :param sections: the lines that this process has to tell beside that, by their
        title; a master decides nothing.
    :raises ConfigError: there is no such file.
    """
    # The report's own section is that of a global configuration, which nobody fills.
    RedactedReport.persistent_sections = [('nova.conf', ConfigReportGenerator(conf))]
    for title, lines in (sections or {}).items():
        RedactedReport.register_section(title, functools.partial(_section, lines))
    package = SimpleNamespace(
        vendor_string=lambda: PRODUCT,
        product_string=lambda: PRODUCT,
        version_string_with_package=version,
    )
    try:
        RedactedReport.setup_autorun(package, service_name=PROCESS_NAME, conf=conf)
    except OSError as error:
        watched = conf.oslo_reports.file_event_handler
        raise ConfigError(
            '[oslo_reports] file_event_handler', watched, str(error)
        ) from None
