# SPDX-License-Identifier: Apache-2.0
"""HTTP connections with limits of time and size."""

import math
import time
from collections.abc import Iterator
from typing import Any

import requests
import urllib3
from keystoneauth1.session import TCPKeepAliveAdapter

CONNECT_TIMEOUT_S = 10.0
"""Maximum time to connect, in seconds."""
CHUNK_BYTES = 1 << 18
"""Size of the pieces in which a response is read."""


def connections(threads: int, max_answer_mib: int) -> requests.Session:
    """Make a session with persistent connections.

    :param threads: number of threads, and of connections.
    :param max_answer_mib: maximum size of a response in MiB.
    """
    pool = requests.Session()
    for scheme in ('http://', 'https://'):
        pool.mount(scheme, _Bounded(max_answer_mib, pool_maxsize=threads))
    return pool


class _Bounded(TCPKeepAliveAdapter):
    """Limits the time to connect, and reads responses within limits."""

    def __init__(self, max_answer_mib: int, **options: Any) -> None:
        super().__init__(**options)
        self._max_answer_mib = max_answer_mib

    def send(
        self,
        request: Any,
        stream: bool = False,
        timeout: Any = None,
        *args: Any,
        **how: Any,
    ) -> requests.Response:
        """Send a request.

        :param timeout: maximum time of the whole response, in seconds. None and 0 are
            no limit, as in keystoneauth1.
        """
        read_timeout = float(timeout or 0) or None
        seconds = read_timeout or math.inf
        timeouts: Any = (min(seconds, CONNECT_TIMEOUT_S), read_timeout)
        response = super().send(request, stream, timeouts, *args, **how)
        response.raw = _Body(response.raw, seconds, self._max_answer_mib)
        return response


class _Body:
    """The body of a response of urllib3, within limits of time and size."""

    def __init__(self, raw: urllib3.HTTPResponse, seconds: float, max_mib: int) -> None:
        self._raw = raw
        self._seconds = seconds
        self._max_mib = max_mib

    def __getattr__(self, name: str) -> Any:
        return getattr(self._raw, name)

    def stream(self, _size: int, decode_content: bool = True) -> Iterator[bytes]:
        """Yield the pieces of the body on arrival. The limit of time holds for the
        whole body, and ends a trickle as well.

        :raises RequestException: the body is too large, takes too long or is cut.
        """
        # urllib3 before 2 has no read1, and fills each piece.
        read = getattr(self._raw, 'read1', self._raw.read)
        until = time.monotonic() + self._seconds
        size = 0

        try:
            while piece := read(CHUNK_BYTES, decode_content=decode_content):
                size += len(piece)
                if size > self._max_mib << 20:
                    raise requests.RequestException(
                        f'the answer has more than {self._max_mib} MiB'
                        ' ([novasched] max_answer_size)'
                    )
                if time.monotonic() > until:
                    raise requests.ReadTimeout(
                        f'no end of the answer within {self._seconds} s'
                    )
                yield piece
        except urllib3.exceptions.ReadTimeoutError as error:
            raise requests.ReadTimeout(error) from None
        except urllib3.exceptions.ProtocolError as error:
            raise requests.exceptions.ChunkedEncodingError(error) from None
        finally:
            # No effect on a connection whose response was read to its end.
            self._raw.close()
