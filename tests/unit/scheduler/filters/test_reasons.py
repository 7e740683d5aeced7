# SPDX-License-Identifier: Apache-2.0
"""The reasons of filters: a reason for each host is kept in decision records."""

from dataclasses import replace
from importlib.metadata import entry_points

import pytest

from novasched.conf.redaction import MAX_SEARCHED_CHARACTERS
from novasched.conf.settings import Settings
from novasched.plugins import loading
from novasched.scheduler.filters import Filter
from novasched.scheduler.filters.shared import BatchFilter, Verdicts, judge
from novasched.scheduler.model.request import Destination, Retry
from tests.lab.builders import a_group, a_host, a_request, a_uuid, numbered_uuids

LONG = 110_000
UUIDS = numbered_uuids('server', 2_900)
HOSTS = []
for i in range(20):
    uuid = a_uuid(f'on {i}')
    HOSTS.append(a_host(f'h{i}', instances=[uuid], host_ip=f'10.0.0.{i}'))
NAMES = tuple(sorted(entry_points(group='novasched.filters').names))
SETTINGS = Settings(
    enabled_filters=NAMES,
    isolated_images=('x',),
    metrics_weight_setting=('x=1',),
    failure_domain_key='rack',
)
FILTERS = {plugin.name: plugin for plugin in loading.filters(SETTINGS)}


def reasons_of(plugin, request, hosts=HOSTS):
    """The reasons against the rejected hosts."""
    return list(filter(None, judge(plugin, hosts, request, None).reasons))


@pytest.mark.parametrize(
    ('name', 'fields'),
    [
        ('SameHostFilter', {'hints': {'same_host': UUIDS}}),
        ('SameHostFilter', {'hints': {'same_host': ['x' * LONG]}}),
        (
            'ServerGroupAffinityFilter',
            {'group': a_group('affinity', hosts=frozenset(UUIDS))},
        ),
    ],
)
def test_equal_reasons_of_a_request_are_a_single_short_text(name, fields):
    """A reason that is the same for all hosts is one object, and lists few of many
    names."""
    reasons = reasons_of(FILTERS[name], a_request(**fields))
    assert len(reasons) == len(HOSTS)
    assert len({id(reason) for reason in reasons}) == 1
    assert len(reasons[0]) < 200


def text_of_all(hosts, text):
    """A request with the text in every field that a filter may quote."""
    return a_request(
        hints={'build_near_host_ip': [text], 'query': [f'["{text}"]'], 'cidr': [text]},
        image={'hw_architecture': text, 'img_hv_requested_version': text, 'os': text},
        extra_specs={'capabilities:x': text, text: text},
        availability_zone=text,
        group=a_group(
            'anti-affinity', [hosts[0].host], rules={'max_server_per_host': text}
        ),
    )


@pytest.mark.parametrize('name', NAMES)
def test_reasons_with_long_texts_of_users_are_cut(name):
    """A filter may quote a long text of a user; the reason is cut."""
    aggregates = a_host(metadata={'os': 'x', 'rack': 'y'}).aggregates
    hosts = [replace(host, aggregates=aggregates) for host in HOSTS]
    request = text_of_all(hosts, 'x' * LONG)
    if FILTERS[name].applies(request):
        reasons = reasons_of(FILTERS[name], request, hosts)
        assert max(map(len, reasons), default=0) <= MAX_SEARCHED_CHARACTERS


class Talkative(Filter):
    """Makes a long and different text for each host."""

    def reject(self, host, request):
        return f'{"x" * LONG}{host.host}'


class TalkativeBatch(BatchFilter):
    """Makes long texts for all hosts at once."""

    def judge(self, hosts, request, candidates):
        return Verdicts([f'{"x" * LONG}{host.host}' for host in hosts], candidates)


@pytest.mark.parametrize('kind', [Talkative, TalkativeBatch])
def test_long_reasons_of_external_filters_are_cut(kind):
    """Reasons of filters of other packages are cut too."""
    reasons = reasons_of(kind(Settings()), a_request())
    assert {len(reason) for reason in reasons} == {MAX_SEARCHED_CHARACTERS}


IDS = {'project_id': 'a-project', 'user_id': 'a-user'}
OTHER_PROJECTS = {
    'filter_tenant_id': 'others',
    'rack': 'r',
    'os': 'y',
    'instance_type': 'z',
}


@pytest.mark.parametrize('name', NAMES)
def test_reasons_have_no_ids_of_project_user_or_group(name):
    """No reason has the UUID of the caller or of the group: records show hashes of IDs
    where the operator wants hashes."""
    group = a_group('anti-affinity', ['on h'], hosts=frozenset(['x']), name='a-group')
    host = a_host(
        'h', metadata=OTHER_PROJECTS, instances=['on h'], disabled=True, ram=0, vcpus=0
    )
    member_hosts = {'affinity': a_host(metadata={'rack': 's'}), 'anti-affinity': host}
    for policy, member_host in member_hosts.items():
        located = {'on h': (member_host,)}
        request = replace(
            a_request(
                hints={
                    'same_host': ['s'],
                    'different_host': ['on h'],
                    'query': ['[">", "$free_ram_mb", 1]'],
                },
                image={'hw_architecture': 'a', 'os': 'x'},
                extra_specs={'x': 'y'},
                availability_zone='zone',
                retry=Retry(1, (('h', 'h'),)),
                requested_destination=Destination(),
                group=replace(group, policy=policy, located=located),
            ),
            **IDS,
        )

        plugin = FILTERS[name]
        if plugin.applies(request):
            for reason in reasons_of(plugin, request, [host]):
                for text in (*IDS.values(), group.uuid):
                    assert text not in reason
