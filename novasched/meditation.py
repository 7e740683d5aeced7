# SPDX-License-Identifier: Apache-2.0
"""The Guru Meditation Report: threads, processes, configuration and the newest decisions, when
a signal asks.

Of options that are declared secret it shows no value.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from oslo_config import cfg
from oslo_reports import guru_meditation_report
from oslo_reports.generators.conf import ConfigReportGenerator

from novasched.errors import ConfigError
from novasched.secrets import hide

PRODUCT = 'novasched'


class Report(guru_meditation_report.TextGuruMeditation):
    """The report, without the secrets in options that are not declared secret."""

    def run(self) -> str:
        return hide(super().run())


class Package:
    """What is said to run."""

    def __init__(self, version: str) -> None:
        self._version = version

    def vendor_string(self) -> str:
        return PRODUCT

    def product_string(self) -> str:
        return PRODUCT

    def version_string_with_package(self) -> str:
        return self._version


def listen(
    conf: cfg.ConfigOpts, version: str, decisions: Callable[[], Sequence[str]] | None = None
) -> None:
    """Report on SIGUSR2, or when the file of ``[oslo_reports] file_event_handler`` is
    touched; to ``[oslo_reports] log_dir``, or else to the standard error. For the main
    thread, and again after a fork, which a watch on a file does not survive.

    :param decisions: what this process has decided last, a line each; a master decides nothing.
    :raises ConfigError: there is no such file.
    """
    # The report's own section is that of a global configuration, which nobody fills.
    Report.persistent_sections = [('nova.conf', ConfigReportGenerator(conf))]
    if decisions is not None:
        Report.register_section('Decisions', lambda: '\n'.join(decisions()) or 'none')
    try:
        Report.setup_autorun(Package(version), service_name='nova-scheduler', conf=conf)
    except OSError as error:
        watched = conf.oslo_reports.file_event_handler
        raise ConfigError('[oslo_reports] file_event_handler', watched, str(error)) from None
