# SPDX-License-Identifier: Apache-2.0
"""A client of nova's HTTP API with the calls of the scenarios."""

from collections.abc import Mapping
from dataclasses import dataclass

import requests

from tests.lab.processes import Failed, wait_until

MICROVERSION = '2.96'
PATIENCE = 90.0
"""Seconds for a server to reach its expected state, on a busy machine."""
PAUSE = 0.2
"""Seconds between two polls. A poll costs the machine as much as a step of the awaited
operation."""

PROJECT = '5f705771-3aa9-4f4c-8660-0d9522ffdbea'
IDENTITY = {
    'X-Auth-Token': 'unread',
    'X-User-Id': '86aff7b9-4a83-4b0a-b08f-5b8ed1bc8b4b',
    'X-Project-Id': PROJECT,
    'X-Roles': 'admin,member,reader',
}
"""The headers that Keystone's middleware would set."""


def eventually(predicate, what):
    """Wait until the predicate holds; raises Failed after :data:`PATIENCE` seconds."""
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
    """Resources of the flavor: {resource class: amount}."""
    fault: str
    """The text of the latest fault, or nothing."""

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
    """Calls as an administrator; an unexpected status raises AssertionError."""

    def __init__(self, url):
        self.url = url
        self._url = f'{url}/v2.1'
        self._session = requests.Session()
        self._session.headers.update(IDENTITY)
        self._session.headers['OpenStack-API-Version'] = f'compute {MICROVERSION}'

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
        servers = self.call('GET', '/servers/detail?all_tenants=1')['servers']
        return [Server.of(server) for server in servers]

    def settled(self, uuid, status):
        """Wait until a server has the status and no task.

        Raises Failed with the server's fault if the server is in ERROR instead.
        """

        def arrived(server):
            if server.status == 'ERROR' != status:
                raise Failed(f'{uuid} is in ERROR: {server.fault}')
            return server.status == status

        return self._once(uuid, arrived, status)

    def offloaded(self, uuid):
        """Wait until a shelved server has left its host."""

        def left_host(server):
            return server.status == 'SHELVED_OFFLOADED' and server.host is None

        return self._once(uuid, left_host, 'offloaded')

    def migrated(self, uuid):
        """Wait until a server's latest migration is done and the server has no task."""

        def done(_):
            path = f'/os-migrations?instance_uuid={uuid}&limit=1'
            latest = self.call('GET', path)['migrations']

            if latest and latest[0]['status'] in ('error', 'failed'):
                raise Failed(f'migration of {uuid}: {latest[0]}')
            return bool(latest) and latest[0]['status'] in ('completed', 'done')

        return self._once(uuid, done, 'migrated')

    def _once(self, uuid, holds, what):
        """Wait until the condition holds for a server without a task."""
        latest = [self.server(uuid)]

        def idle():
            is_met = holds(self.server(uuid))
            # The task counts that the server has after the condition was met.
            latest[:] = [self.server(uuid)]
            return is_met and latest[0].task is None

        try:
            eventually(idle, f'{what} {uuid}')
        except Failed as error:
            raise Failed(f'{error}; it is {latest[0]}') from None
        return latest[0]

    def events(self, uuid, action):
        """The events of a server's latest action of the given name, the newest
        first."""
        path = f'/servers/{uuid}/os-instance-actions'
        for candidate in self.call('GET', path)['instanceActions']:
            if candidate['action'] == action:
                request = candidate['request_id']
                return self.call('GET', f'{path}/{request}')['instanceAction']['events']
        raise Failed(f'{uuid} has no action {action}')

    def failure(self, uuid, action):
        """Wait until a server's latest action of the given name has failed; the details
        of the failure."""

        def failures():
            events = self.events(uuid, action)
            return [event for event in events if event['result'] == 'Error']

        eventually(lambda: bool(failures()), f'failure of {action} of {uuid}')
        return str(failures()[0]['details'])

    def delete(self, *uuids):
        """Delete servers; returns when the API does not list them any more."""
        for uuid in uuids:
            self.call('DELETE', f'/servers/{uuid}')

        def are_gone():
            listed = {server.uuid for server in self.servers()}
            return listed.isdisjoint(uuids)

        eventually(are_gone, f'end of {uuids}')

    def services(self, binary):
        services = self.call('GET', f'/os-services?binary={binary}')['services']
        return {service['host']: service for service in services}

    def update_compute(self, host, **changes):
        uuid = self.services('nova-compute')[host]['id']
        self.call('PUT', f'/os-services/{uuid}', changes)
