# SPDX-License-Identifier: Apache-2.0
"""Tenants who boot, rebuild and delete servers, and the work of nova-api and
nova-conductor for tenants."""

import json
import time
from dataclasses import replace

import oslo_messaging

from tests.lab.compute_rows import now
from tests.lab.daemon import new_uuids
from tests.lab.nova_cloud import PROJECT, USER
from tests.lab.placement_api import PlacementApi
from tests.soak.allocation_audit import BY_NOVA, CHANGED_MEANWHILE, LOST, MISSING
from tests.soak.schedulers import CONDUCTOR
from tests.soak.world import FAILED, TURNED_AWAY, WRONG, Server, draw_template

CALL_TIMEOUT_S = 120
CALL_MONITOR_TIMEOUT_S = 30
EMPTYING_SHARES = {'delete': 9, 'boot': 1}
"""Shares of the actions of all tenants while the cloud is full."""
FAILED_BUILD_SHARE = 0.02
"""Share of servers whose start fails."""


class Tenant:
    """A tenant who acts at the same time as other tenants.

    :param shares: the shares of actions, by the names of methods.
    """

    def __init__(self, caller, random, audit, shares):
        self.caller = caller
        self.random = random
        self.audit = audit
        self.shares = shares
        self.world = audit.world
        self.journal = audit.journal
        self.placement = PlacementApi(self.world.cloud.placement_url)

    def act(self):
        """Do one action by chance."""
        shares = self.shares
        if self.world.is_emptying:
            shares = EMPTYING_SHARES
        [name] = self.random.choices(list(shares), list(shares.values()))
        getattr(self, name)()

    def boot(self):
        """Boot servers by chance, perhaps in a server group that is free."""
        world = self.world
        group = world.take_group()
        template = draw_template(self.random, group, world.some(self.random, 2))
        try:
            self._boot(template)
        finally:
            if group:
                world.give_group(group)

    def _boot(self, template):
        uuids = new_uuids(template.count)
        kind = template.kind()
        asked_at = time.monotonic()
        placements = self._ask(kind, uuids)
        if placements is None:
            if template.name == 'plain':
                self.world.full()
            return

        machines = []
        for uuid, (machine, allocations) in zip(uuids, placements, strict=True):
            self.world.expected[uuid] = allocations
            machines.append(machine)
        self._check(uuids, template, kind, machines, asked_at)

        for uuid, machine in zip(uuids, machines, strict=True):
            server = Server(uuid, template)
            if self.random.random() < FAILED_BUILD_SHARE:
                self._fail(server, machine)
            elif machine.land(server):
                self.world.cloud.map_server(server.uuid, machine.compute.cell)
                self.world.joined(server)
                self.world.give(server)
            else:
                self.world.count(TURNED_AWAY)
                self._release(uuid)

    def rebuild(self):
        """Rebuild a server on its host, for which the scheduler claims nothing."""
        server = self.world.take(self.random)
        if server is None:
            return

        template = replace(server.template, count=1, group=None, avoided=())
        kind = template.kind(
            scheduler_hints={'_nova_check_type': ['rebuild']},
            force_hosts=[server.host],
            force_nodes=[server.host],
        )
        placements = self._ask(kind, [server.uuid])
        if placements:
            [(machine, _)] = placements
            if machine.name != server.host:
                self.world.wrong(WRONG, f'{server.uuid} is rebuilt on {machine.name}')
        self.world.give(server)

    def delete(self):
        """Delete a server by chance."""
        if server := self._take():
            self.delete_server(server)

    def delete_server(self, server):
        machine = self._machine(server)
        machine.leave(server)
        self._release(server.uuid)
        # Before the row is changed: a scheduler that reads the row afterwards may
        # choose the host for another member.
        self.world.left(server)
        self._mark_deleted(machine, server)
        self._announce_departure(machine, server)

    def _take(self, suits=lambda _: True, is_alone=False):
        """Take an idle server whose allocations are right; None without such a server.

        :param is_alone: take no member of a server group.
        """

        def is_suitable(server):
            if is_alone and server.template.group:
                return False
            return suits(server)

        server = self.world.take(self.random, is_suitable)
        if server is None:
            return None

        due = self.world.expected.get(server.uuid, {})
        if self.audit.is_right(server.uuid, due):
            return server
        self.world.give(server)
        return None

    def _ask(self, kind, uuids, **arguments):
        """The host and the allocations of each server; None if the request fails.

        :param arguments: arguments of the call in which a move differs from a build.
        """
        world = self.world
        world.count('requests')
        for uuid in uuids:
            self._note(uuid, 'asks')

        try:
            selections = self.caller.call(
                'select_destinations',
                {**kind.arguments(uuids), **arguments},
                timeout=CALL_TIMEOUT_S,
                call_monitor_timeout=CALL_MONITOR_TIMEOUT_S,
            )
        except oslo_messaging.MessagingException as error:
            if getattr(error, 'exc_type', None) == 'NoValidHost':
                world.count('refused')
            else:
                self._failed(uuids, error)
            for uuid in uuids:
                self._note(uuid, 'gets no host')
            return None

        world.count('answered')
        world.count('placed', len(selections))
        placements = []
        for row in selections:
            selection = row[0]['nova_object.data']
            machine = world.machines[selection['service_host']]
            allocations = _allocations_of(selection['allocation_request'])
            placements.append((machine, allocations))
        for uuid, (machine, _) in zip(uuids, placements, strict=False):
            self._note(uuid, f'gets {machine.name}')
        return placements

    def _failed(self, uuids, error):
        """Note an error other than a refusal."""
        for uuid in uuids:
            self._note(uuid, f'is told {error!r:.300}')

        if isinstance(error, oslo_messaging.MessagingTimeout):
            self.audit.report_wrong(LOST, uuids[0], repr(error))
        elif getattr(error, 'exc_type', None) == 'AllocationUpdateFailed':
            self.world.count(CHANGED_MEANWHILE)
        elif self._is_novas(error):
            self.world.wrong(FAILED + BY_NOVA, repr(error))
        else:
            self.world.wrong(FAILED, repr(error))

    def _is_novas(self, error):
        """True if the error comes from nova-scheduler."""
        if not any(scheduler.is_novas for scheduler in self.audit.schedulers):
            return False
        return 'novasched' not in str(getattr(error, 'traceback', ''))

    def _check(self, uuids, template, kind, hosts, asked_at):
        """Report hosts that were unfit during the whole request."""
        for host in hosts:
            is_outside = template.aggregate not in (None, *host.aggregates)
            if host.unfit_since < asked_at:
                text = f'{host.name} was down, disabled or gone'
            elif host.name in kind.more.get('ignore_hosts', ()):
                text = f'{host.name} was to be ignored'
            elif is_outside and host.aggregates_since < asked_at:
                text = f'{host.name} was not in {template.aggregate}'
            else:
                continue
            self.audit.report_wrong(WRONG, uuids[0], text)

        if kind.group is not None:
            self._check_policy(uuids, template, kind.group, hosts)

    def _check_policy(self, uuids, template, group, hosts):
        """Report hosts that violate the policy of the server group."""
        names = [host.name for host in hosts]
        before = group['hosts']
        # The scheduler may have seen members that were deleted during the request.
        staying = self.world.hosts_of_members(template.group, group['members'])

        is_violated = False
        if group['policy'] == 'anti-affinity':
            are_distinct = len({*names}) == len(names)
            is_violated = not are_distinct or bool({*names} & {*staying.values()})
        elif group['policy'] == 'affinity':
            is_violated = len(before) < 2 and len({*names, *before}) != 1

        if is_violated:
            text = (
                f'{group["policy"]} of {names} with {before}, where {staying} are left'
            )
            self.audit.report_wrong(WRONG, uuids[0], text)

    def _fail(self, server, machine):
        """Let the build of a server fail on its compute. The server stays without a host
        until the server is deleted."""
        self.world.count('failed builds')
        row = {
            'created_at': now(),
            'updated_at': now(),
            'deleted': 0,
            'uuid': server.uuid,
            'project_id': PROJECT,
            'user_id': USER,
            'vm_state': 'error',
            'host': None,
        }
        machine.database.insert('instances', [row])
        self._release(server.uuid)

    def _release(self, uuid):
        """Delete the allocations of a server."""
        self._note(uuid, 'releases everything')
        if self.world.expected.pop(uuid, None):
            try:
                self.placement.release(uuid)
            except AssertionError as error:
                self.audit.report_wrong(
                    MISSING, uuid, f'has nothing to release: {error}'
                )

    def _mark_deleted(self, machine, server):
        """Mark the row of a server as deleted."""
        self._note(server.uuid, 'deleted')
        instances = machine.database.table('instances')
        self._set(
            machine,
            server,
            deleted=instances.c.id,
            deleted_at=now(),
            vm_state='deleted',
        )
        self.world.count('deleted')

    def _set(self, machine, server, **columns):
        machine.database.update(
            'instances', {'updated_at': now(), **columns}, uuid=server.uuid
        )

    def _announce_departure(self, machine, server):
        """Announce to schedulers, as nova-compute does, that a server left its host."""
        arguments = {'host_name': machine.name, 'instance_uuid': server.uuid}
        self.caller.cast('delete_instance_info', arguments)

    def _machine(self, server):
        return self.world.machines[str(server.host)]

    def _note(self, uuid, event):
        self.journal.note(uuid, CONDUCTOR, event)


def _allocations_of(allocation_request):
    """The allocations of a placed server; none if the scheduler claimed nothing."""
    request = json.loads(allocation_request)
    if not request:
        return {}
    allocations = request['allocations']
    return {provider: part['resources'] for provider, part in allocations.items()}
