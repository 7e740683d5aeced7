# SPDX-License-Identifier: Apache-2.0
"""What nova asks of Neutron for servers without networks: lists, all of them empty."""

from __future__ import annotations

import json
from collections.abc import Mapping
from urllib.parse import urlsplit

from tests.lab.http_stub import JSON, HttpStub, Reply


class NetworkService(HttpStub):
    """A Neutron that has nothing, in threads of this process."""

    def reply(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> Reply:
        """``GET /v2.0/ports.json`` is answered with ``{"ports": []}``, whatever the noun."""
        noun = urlsplit(path).path.rpartition('/')[2].removesuffix('.json')
        return 200, JSON, json.dumps({noun.replace('-', '_'): []}).encode()
