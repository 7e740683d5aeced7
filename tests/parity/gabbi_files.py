# SPDX-License-Identifier: Apache-2.0
"""The steps of Placement's gabbi files, without gabbi.

A step is an HTTP request of a file. Steps may contain ``$ENVIRON['NAME']`` and values
of the answers to earlier steps: ``$HISTORY['step'].$RESPONSE['$.key']``.
"""

import os
import re
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlencode

import placement.tests.functional
import yaml

FOLDER = Path(placement.tests.functional.__file__).parent / 'gabbits'

METHODS = ('GET', 'PUT', 'POST', 'DELETE')
VERSION_HEADER = 'openstack-api-version'
NEWEST_MICROVERSION = '1.39'

_ENVIRON = re.compile(r"""\$ENVIRON\[['"](.+?)['"]\]""")
_HISTORY = re.compile(
    r"""\$HISTORY\[['"](?P<step>.+?)['"]\]\.\$RESPONSE\[['"]\$\.(?P<key>\w+)['"]\]"""
)


@dataclass(frozen=True)
class Step:
    """A request of a gabbi file. :meth:`GabbiFile.resolve` replaces references."""

    name: str
    method: str
    url: str
    data: object
    status: int
    headers: dict[str, str]

    @property
    def microversion(self):
        microversion = self.headers[VERSION_HEADER].removeprefix('placement ')
        if microversion == 'latest':
            return NEWEST_MICROVERSION
        return microversion

    @property
    def is_candidates_query(self):
        return self.method == 'GET' and self.url.startswith('/allocation_candidates')


class GabbiFile:
    """A file of Placement, and the answers to its steps.

    :ivar fixture: the name of the class of the fixture.
    :ivar steps: the steps in the order of the file.
    """

    def __init__(self, name):
        content = yaml.safe_load((FOLDER / name).read_text())
        (self.fixture,) = content['fixtures']
        headers = content.get('defaults', {}).get('request_headers', {})
        self.steps = []
        for test in content['tests']:
            self.steps.append(_step(test, headers))
        self._answers = {}

    def keep_answer(self, step, body):
        """Make the body of an answer known to later steps."""
        self._answers[step.name] = body

    def resolve(self, value):
        """A value of a step, without references."""
        if isinstance(value, dict):
            return {key: self.resolve(part) for key, part in value.items()}
        if isinstance(value, list):
            return [self.resolve(part) for part in value]
        if not isinstance(value, str):
            return value

        if match := _HISTORY.fullmatch(value):
            return self._answers[match['step']][match['key']]
        return _ENVIRON.sub(lambda match: os.environ[match[1]], value)


def _step(test, default_headers):
    headers = {**default_headers, **test.get('request_headers', {})}
    method = next(name for name in METHODS if name in test)
    url = test[method]
    if parameters := test.get('query_parameters'):
        separator = '&' if '?' in url else '?'
        url += separator + urlencode(parameters, doseq=True, safe="$[]'!:,")

    return Step(
        name=test['name'],
        method=method,
        url=url,
        data=test.get('data'),
        status=test.get('status', 200),
        headers=headers,
    )
