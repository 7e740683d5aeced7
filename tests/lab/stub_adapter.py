# SPDX-License-Identifier: Apache-2.0
"""A keystoneauth1 adapter with prepared responses of Placement, and the responses."""

import json
from types import SimpleNamespace


class StubAdapter:
    """Stands for a keystoneauth1 adapter.

    Without options of nova.conf the attributes are None, as in keystoneauth1.

    :ivar requests: method and path of all requests, in order.
    :ivar options: the keyword arguments of the same requests.
    """

    connect_retries = None
    connect_retry_delay = None
    status_code_retries = None
    status_code_retry_delay = None

    def __init__(self, responses):
        """:param responses: method and start of the path ('GET /allocations') to the
        responses and errors in order. The last one is repeated.
        """
        self.responses = {key: list(values) for key, values in responses.items()}
        self.requests = []
        self.options = []

    def request(self, path, method, **options):
        request = f'{method} {path}'
        self.requests.append(request)
        self.options.append(options)
        key = next(filter(request.startswith, self.responses))
        responses = self.responses[key]
        response = responses[0]
        if len(responses) > 1:
            del responses[0]
        if isinstance(response, Exception):
            raise response
        return response


def a_response(status, body=b'', reason=''):
    """A response of requests; the body is bytes, or is encoded as JSON."""
    if not isinstance(body, bytes):
        body = json.dumps(body).encode()
    return SimpleNamespace(status_code=status, content=body, reason=reason)


def an_error(status, detail='', code=''):
    """An error in Placement's format."""
    return a_response(status, {'errors': [{'detail': detail, 'code': code}]})


def an_answer(resources, traits=(), used=0):
    """The body of GET /allocation_candidates.

    :param resources: the amounts of each host that is offered, by UUID.
    """
    requests = []
    summaries = {}
    for uuid, amounts in resources.items():
        requests.append(
            {
                'allocations': {uuid: {'resources': amounts}},
                'mappings': {'': [uuid]},
            }
        )
        capacity = {}
        for name, amount in amounts.items():
            capacity[name] = {'capacity': 9 * amount, 'used': used}
        summaries[uuid] = {
            'resources': capacity,
            'traits': [*traits],
            'root_provider_uuid': uuid,
        }
    return {'allocation_requests': requests, 'provider_summaries': summaries}
