# SPDX-License-Identifier: Apache-2.0
"""The process as a whole: memory, process title, and Guru Meditation Report."""

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
M_ARENA_MAX = -8  # from malloc.h of glibc
YOUNG_GENERATIONS = 1
"""The generations to collect often: objects of generations 0 and 1."""
YOUNG_OBJECTS = 100_000
"""Number of new objects before the garbage collector runs."""
PROCESS_NAME = 'nova-scheduler'
PRODUCT = 'novasched'


def version() -> str:
    return importlib.metadata.version(PRODUCT)


def tune_malloc() -> None:
    """Let threads share heaps, with glibc as C library.

    By default glibc gives each thread a heap. Memory that a thread frees, such as an
    answer of some MB, is then not available to the remaining threads.
    """
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).mallopt(M_ARENA_MAX, MALLOC_ARENAS)


def trim_heaps() -> None:
    """Collect garbage among young objects, and return free memory to the system.

    Long texts of hosts and answers leave free memory between pieces in use. Only glibc
    can return such memory.
    """
    gc.collect(YOUNG_GENERATIONS)
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).malloc_trim(0)


def share_modules() -> None:
    """Let processes that are forked later share the memory of existing objects."""
    # The garbage collector writes to each object, and a fork copies a written page.
    gc.collect()
    gc.freeze()


def tune_gc() -> None:
    """Let the garbage collector run rarely.

    A request makes many objects per host, which live as long as the request and form no
    cycles. Examining these objects takes a third of a decision over 20,000 hosts, and
    finds nothing.

    Cycles come mostly from messages of oslo.messaging. A periodic task collects all
    generations: an object that was in use while young would otherwise occupy memory for
    hours.
    """
    gc.set_threshold(YOUNG_OBJECTS, 20, 20)


def set_process_title(role: str) -> None:
    """Show the process as nova-scheduler in a role. To be called by the main thread.

    Health probes of kolla search command lines for ``nova-scheduler``. Probes of
    openstack-helm compare the name with the name of the process.
    """
    setproctitle.setproctitle(f'{PROCESS_NAME}: {role}')
    # By default the name of the process is the first 15 characters of the title, here
    # with the colon.
    setproctitle.setthreadtitle(PROCESS_NAME)


class RedactedReport(guru_meditation_report.TextGuruMeditation):
    """The Guru Meditation Report without secrets.

    Secrets in options are hidden even if the option is not declared secret.
    """

    def run(self) -> str:
        return redact(super().run())


def _section(lines: Callable[[], Sequence[str]]) -> str:
    return '\n'.join(lines()) or 'none'


def report_on_signal(
    conf: cfg.ConfigOpts,
    sections: Mapping[str, Callable[[], Sequence[str]]] | None = None,
) -> None:
    """Write the Guru Meditation Report on SIGUSR2, or when a file is touched.

    The file is ``[oslo_reports] file_event_handler``. The report goes to
    ``[oslo_reports] log_dir``, or to the standard error. To be called by the main
    thread, and again after a fork: the watch on the file does not survive a fork.

    :param sections: further lines of this process by title.
    :raises ConfigError: the file does not exist.
    """
    # The default section of oslo.reports shows the global cfg.CONF, which is empty.
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
        path = conf.oslo_reports.file_event_handler
        option = '[oslo_reports] file_event_handler'
        raise ConfigError(option, path, str(error)) from None
