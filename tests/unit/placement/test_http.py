# SPDX-License-Identifier: Apache-2.0
import gzip
import threading

import pytest
from keystoneauth1 import adapter, noauth, session

from novasched.placement import http
from novasched.placement.api import PlacementApi
from novasched.scheduler.errors import PlacementUnavailable
from tests.lab.proxy import HttpStub

OK = b'HTTP/1.1 200 OK\r\n'
SAYS = {'yes': b'{"yes": 1}', 'long': b'[' + b'1,' * 300_000 + b'1]'}


class Speaker(HttpStub):
    """A server with a prepared response. ``says``: the bytes, or a pair of bytes to
    send at once and bytes to repeat. ``stays``: the connection stays open."""

    says = b''
    stays = False

    def __init__(self):
        super().__init__()
        self.over = threading.Event()
        self.visitors = set()

    def serve(self, handler, body):
        self.visitors.add(handler)
        handler.close_connection = not self.stays
        head, byte = (self.says, None) if isinstance(self.says, bytes) else self.says
        handler.wfile.write(head)
        while byte is not None and not self.over.wait(0.01):
            handler.wfile.write(byte)

    def api(self, max_answer_mib=64):
        pool = http.connections(4, max_answer_mib)
        own = session.Session(auth=noauth.NoAuth(), session=pool, timeout=0.3)
        url = f'http://{self.address}'
        return PlacementApi(
            adapter.Adapter(own, service_type='placement', endpoint_override=url)
        )


@pytest.fixture
def speaker():
    with Speaker() as speaker:
        yield speaker
        speaker.over.set()


@pytest.fixture
def api(speaker):
    api = speaker.api()
    yield api
    api.breaker.stop()


def with_length(body, *headers):
    head = b''.join(each + b'\r\n' for each in headers)
    return OK + head + b'Content-Length: %d\r\n\r\n' % len(body) + body


def chunked(*pieces):
    head = OK + b'Transfer-Encoding: chunked\r\n\r\n'
    return head + b''.join(
        b'%x\r\n%s\r\n' % (len(each), each) for each in (*pieces, b'')
    )


@pytest.mark.parametrize(
    ('says', 'content'),
    [
        (with_length(SAYS['yes']), SAYS['yes']),
        (with_length(SAYS['long']), SAYS['long']),
        (chunked(SAYS['yes'][:3], SAYS['yes'][3:]), SAYS['yes']),
        (chunked(SAYS['long'], SAYS['yes']), SAYS['long'] + SAYS['yes']),
        (
            with_length(gzip.compress(SAYS['long']), b'Content-Encoding: gzip'),
            SAYS['long'],
        ),
        (with_length(b''), b''),
        (b'HTTP/1.1 204 No Content\r\n\r\n', b''),
    ],
    ids=['length', 'long', 'chunked', 'long chunks', 'gzip', 'empty', 'none'],
)
def test_a_response_is_read_whole_and_the_connection_is_kept(
    speaker, api, says, content
):
    """Responses are read to the end, and the connection is kept."""
    speaker.says = says
    speaker.stays = True
    assert [api.send('GET', '/').content for _ in range(3)] == [content] * 3
    assert len(speaker.visitors) == 1


@pytest.mark.parametrize(
    'says',
    [
        b'',
        b'\x00\xff' * 500,
        b'HTTP/1.1 2',
        b'HTTP/1.1 twohundred\r\n\r\n',
        b'HTTP/9.9 200 OK\r\n\r\n' + b'x' * 100,
        OK + b'Content-Length: 100\r\n\r\n{"half": ',
        OK + b'Content-Length: -5\r\nTransfer-Encoding: chunked\r\n\r\n',
        OK + b'Transfer-Encoding: chunked\r\n\r\n5\r\nhel',
        OK + b'Transfer-Encoding: chunked\r\n\r\nzz\r\nhello\r\n',
        with_length(b'no gzip', b'Content-Encoding: gzip'),
        OK + b'X: y\r\n' * 1000 + b'\r\n',
        OK + b'X: ' + b'y' * 100_000 + b'\r\n\r\n',
        b'HTTP/1.1 302 Found\r\nLocation: http://[oh\r\n\r\n',
        b'HTTP/1.1 302 Found\r\nLocation: /again\r\nContent-Length: 0\r\n\r\n',
        b'HTTP/1.1 302 Found\r\nLocation: gopher://x/\r\nContent-Length: 0\r\n\r\n',
        b'HTTP/1.1 302 Found\r\nLocation: \xff\xfe\r\nContent-Length: 0\r\n\r\n',
        (OK, b'X: y\r\n'),
        (OK + b'Content-Length: 1000000\r\n\r\n', b'x'),
        (OK + b'Transfer-Encoding: chunked\r\n\r\n', b'1\r\nx\r\n'),
        (OK + b'Content-Length: 5\r\n\r\n', b''),
        (b'', b''),
    ],
)
def test_a_broken_or_slow_response_raises_placement_unavailable(speaker, api, says):
    """A broken or slow response is an error of a single kind."""
    speaker.says = says
    with pytest.raises(PlacementUnavailable):
        api.send('GET', '/', retry_s=0)


@pytest.mark.parametrize('wrapped', [with_length, chunked])
def test_a_response_above_the_size_limit_is_refused(speaker, wrapped):
    """A response is read up to the limit, also while it is decompressed."""
    api = speaker.api(max_answer_mib=1)
    speaker.stays = True
    speaker.says = wrapped(b'x' * (1 << 20))
    assert len(api.send('GET', '/').content) == 1 << 20
    packed = with_length(gzip.compress(b'x' * (8 << 20)), b'Content-Encoding: gzip')
    for says in (wrapped(b'x' * (1 << 20) + b'x'), packed):
        speaker.says = says
        with pytest.raises(PlacementUnavailable, match='more than 1 MiB'):
            api.send('GET', '/')
