# SPDX-License-Identifier: Apache-2.0
"""nova's HTTP API as far as the scenarios use it."""

from collections.abc import Mapping
from dataclasses import dataclass

import requests

from tests.lab.processes import Failed, wait_until

MICROVERSION = '2.96'
PATIENCE = 90.0
"""Seconds for a server to get where it is going, on a busy machine."""
PAUSE = 0.2
"""Seconds between two looks: each costs the machine as much as a step of what is waited
for."""

PROJECT = '5f705771-3aa9-4f4c-8660-0d9522ffdbea'
IDENTITY = {
    'X-Auth-Token': 'unread',
    'X-User-Id': '86aff7b9-4a83-4b0a-b08f-5b8ed1bc8b4b',
    'X-Project-Id': PROJECT,
    'X-Roles': 'admin,member,reader',
    'OpenStack-API-Version': f'compute {MICROVERSION}',
}


def eventually(predicate, what):
    """Return when the predicate holds, raise Failed if it does not in good time."""
    wait_until(predicate, PATIENCE, what, PAUSE)


@dataclass(frozen=True)
class Server:
    uuid: str
    status: str
    task: str | None
    host: str | None
    zone: str
    image: str
    takes: Mapping[str, int]
    """What its flavor takes of a host: {resource class: amount}."""
    fault: str
    """The text of what went wrong last, or nothing."""

    @classmethod
    def of(cls, shown):
        flavor = shown['flavor']
        return cls(
            shown['id'],
            shown['status'],
            shown['OS-EXT-STS:task_state'],
            shown['OS-EXT-SRV-ATTR:host'],
            shown['OS-EXT-AZ:availability_zone'],
            (shown['image'] or {}).get('id', ''),
            {
                'VCPU': flavor['vcpus'],
                'MEMORY_MB': flavor['ram'],
                'DISK_GB': flavor['disk'],
            },
            shown.get('fault', {}).get('message', ''),
        )


class ComputeApi:
    """Calls as an administrator; an unexpected status raises."""

    def __init__(self, url):
        self._url = f'{url}/v2.1'
        self._session = requests.Session()
        self._session.headers.update(IDENTITY)

    def call(self, method, path, body=None):
        response = self._session.request(
            method, self._url + path, json=body, timeout=120
        )
        if not response.ok:
            raise AssertionError(
                f'{method} {path}: {response.status_code} {response.text}'
            )
        if response.content:
            return response.json()
        return None

    def act(self, uuid, action, arguments=None):
        self.call('POST', f'/servers/{uuid}/action', {action: arguments})

    def server(self, uuid):
        return Server.of(self.call('GET', f'/servers/{uuid}')['server'])

    def servers(self):
        shown = self.call('GET', '/servers/detail?all_tenants=1')['servers']
        return [Server.of(each) for each in shown]

    def settled(self, uuid, status):
        """A server that has nothing in hand, once its status is this one; Failed with
        its fault when it comes to an error instead."""

        def arrived(server):
            if server.status == 'ERROR' != status:
                raise Failed(f'{uuid} is in ERROR: {server.fault}')
            return server.status == status

        return self._once(uuid, arrived, status)

    def offloaded(self, uuid):
        """A shelved server, once it has left its host."""
        return self._once(
            uuid,
            lambda now: now.status == 'SHELVED_OFFLOADED' and now.host is None,
            'offloaded',
        )

    def migrated(self, uuid):
        """A server with nothing in hand, once its latest migration is done."""

        def done(_):
            path = f'/os-migrations?instance_uuid={uuid}&limit=1'
            latest = self.call('GET', path)['migrations']
            if latest and latest[0]['status'] in ('error', 'failed'):
                raise Failed(f'migration of {uuid}: {latest[0]}')
            return bool(latest) and latest[0]['status'] in ('completed', 'done')

        return self._once(uuid, done, 'migrated')

    def _once(self, uuid, holds, what):
        """A server with nothing in hand, once that holds for it."""
        seen = [self.server(uuid)]

        def idle():
            held = holds(self.server(uuid))
            seen[:] = [self.server(uuid)]  # as it is after that
            return held and seen[0].task is None

        try:
            eventually(idle, f'{what} {uuid}')
        except Failed as error:
            raise Failed(f'{error}; it is {seen[0]}') from None
        return seen[0]

    def events(self, uuid, action):
        """What is on record of a server's latest action of this name, the newest
        first."""
        path = f'/servers/{uuid}/os-instance-actions'
        actions = self.call('GET', path)['instanceActions']
        request = next(
            each['request_id'] for each in actions if each['action'] == action
        )
        return self.call('GET', f'{path}/{request}')['instanceAction']['events']

    def failure(self, uuid, action):
        """Why a server's latest action of this name failed, once it has."""

        def failed():
            return [
                each for each in self.events(uuid, action) if each['result'] == 'Error'
            ]

        eventually(lambda: bool(failed()), f'failure of {action} of {uuid}')
        return str(failed()[0]['details'])

    def delete(self, *uuids):
        """Delete servers; returns when the API shows them no more."""
        for uuid in uuids:
            self.call('DELETE', f'/servers/{uuid}')
        eventually(
            lambda: not {server.uuid for server in self.servers()} & set(uuids),
            f'end of {uuids}',
        )

    def services(self, binary):
        shown = self.call('GET', f'/os-services?binary={binary}')['services']
        return {each['host']: each for each in shown}

    def update_compute(self, host, **changes):
        uuid = self.services('nova-compute')[host]['id']
        self.call('PUT', f'/os-services/{uuid}', changes)
