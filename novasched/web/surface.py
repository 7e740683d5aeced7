# SPDX-License-Identifier: Apache-2.0
"""All that is served."""

from __future__ import annotations

from collections.abc import Mapping

from novasched.metrics.exposition import CONTENT_TYPE, Exposition
from novasched.web.routing import App, routed, text


def surface(directory: str, otherwise: App | None = None) -> App:
    """The application of the process.

    :param directory: where the workers keep their metrics.
    :param otherwise: answers for every path that is not named here.
    """
    routes: Mapping[str, App] = {
        '/metrics': text(Exposition(directory), CONTENT_TYPE),
    }
    return routed(routes, otherwise)
