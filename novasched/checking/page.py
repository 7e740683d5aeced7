# SPDX-License-Identifier: Apache-2.0
"""The page for people, where nova.conf wants it: it can be shown, or the finding says why not."""

from __future__ import annotations

from collections.abc import Iterator

from novasched import viewing
from novasched.checking.finding import Finding, Level
from novasched.checking.nova_conf import NovaConf
from novasched.errors import ConfigError

AREA = 'page'


def check(nova_conf: NovaConf) -> Iterator[Finding]:
    """Nothing where it is not wanted."""
    try:
        page = viewing.page_of(nova_conf.conf)
    except ConfigError as error:
        yield Finding(AREA, Level.ERROR, viewing.OPTION, str(error))
        return
    if page is not None:
        yield Finding(AREA, Level.OK, viewing.OPTION, 'can be shown')
