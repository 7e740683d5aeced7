# SPDX-License-Identifier: Apache-2.0
"""A real Prometheus that scrapes a daemon, and promtool."""

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import requests
import yaml

from .binaries import program
from .processes import START, Process, Service, free_port

PACKAGE = 'prometheus'
ETC = Path(__file__).parents[2] / 'etc'
RULES = ETC / 'prometheus' / 'novasched.rules.yml'
DASHBOARD = ETC / 'grafana' / 'novasched.json'
EVERY = '1s'
"""Between two scrapes, and between two looks at the rules."""


def promtool(*arguments: str, text: str = '') -> str:
    """What it says; the end of the test where it is not content."""
    done = subprocess.run(
        [program(PACKAGE, 'promtool'), *arguments], input=text, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


class Prometheus(Service):
    """It, with the rules; for a with statement.

    :param target: HOST:PORT that it scrapes.
    """

    def __init__(self, folder: Path, target: str) -> None:
        config = folder / 'prometheus.yml'
        jobs = [{'job_name': 'novasched', 'static_configs': [{'targets': [target]}]}]
        every = {'scrape_interval': EVERY, 'evaluation_interval': EVERY}
        text = {'global': every, 'rule_files': [str(RULES)], 'scrape_configs': jobs}
        config.write_text(yaml.safe_dump(text))
        address = f'127.0.0.1:{free_port()}'
        self._url = f'http://{address}/'
        self._log = folder / 'prometheus.log'
        self._command = [
            program(PACKAGE, 'prometheus'),
            f'--config.file={config}',
            f'--storage.tsdb.path={folder / "data"}',
            f'--web.listen-address={address}',
        ]

    def start(self) -> None:
        self._process = Process(self._command, self._log)
        self._process.ready(self._is_ready, START, 'Prometheus')

    def query(self, expression: str) -> list[float]:
        """The values that an expression has now.

        :raises HTTPError: it is no expression.
        """
        found = self._get('api/v1/query', {'query': expression})
        return [float(each['value'][1]) for each in found['result']]

    def rules(self) -> list[dict[str, Any]]:
        return [rule for group in self._get('api/v1/rules')['groups'] for rule in group['rules']]

    def _is_ready(self) -> bool:
        try:
            return requests.get(self._url + '-/ready', timeout=START).status_code == 200
        except requests.ConnectionError:
            return False

    def _get(self, path: str, parameters: Mapping[str, str] | None = None) -> Any:
        answer = requests.get(self._url + path, parameters, timeout=START)
        answer.raise_for_status()
        return answer.json()['data']


def expressions() -> list[str]:
    """Those of the dashboard's panels, with Grafana's variables filled in."""
    panels = json.loads(DASHBOARD.read_text())['panels']
    return [
        target['expr'].replace('$__rate_interval', '1m').replace('$instance', '.*')
        for panel in panels
        for target in panel.get('targets', ())
    ]
