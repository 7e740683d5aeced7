# SPDX-License-Identifier: Apache-2.0
"""The reasons of filters, of which each host is given one, and which are kept."""

from dataclasses import replace
from importlib.metadata import entry_points

import pytest

from novasched.conf.redaction import MAX_SEARCHED_CHARACTERS
from novasched.conf.settings import Settings
from novasched.plugins import loading
from novasched.scheduler.filters import Filter
from novasched.scheduler.filters.shared import BatchFilter, Verdicts, judge
from novasched.scheduler.model.request import Destination, Retry
from tests.lab.builders import a_group, a_host, a_request, a_uuid

LONG = 110_000
UUIDS = [a_uuid(f'server{i}') for i in range(2_900)]
HOSTS = [
    a_host(f'h{i}', instances=[a_uuid(f'on {i}')], host_ip=f'10.0.0.{i}')
    for i in range(20)
]
NAMES = tuple(sorted(entry_points(group='novasched.filters').names))
SETTINGS = Settings(
    enabled_filters=NAMES,
    isolated_images=('x',),
    metrics_weight_setting=('x=1',),
    failure_domain_key='rack',
)
FILTERS = {each.name: each for each in loading.filters(SETTINGS)}


def reasons_of(each, request, hosts=HOSTS):
    return [reason for reason in judge(each, hosts, request, None).reasons if reason]


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
def test_one_reason_for_a_request(name, fields):
    """The text that is the same for all hosts is made once, and names few of many."""
    reasons = reasons_of(FILTERS[name], a_request(**fields))
    assert len(reasons) == len(HOSTS)
    assert len({id(reason) for reason in reasons}) == 1
    assert len(reasons[0]) < 200


def text_of_all(hosts, text):
    """A request in which every field that a filter may quote has this text."""
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
def test_the_length_of_reasons(name):
    """A filter may quote a user: no host is given a text of any length."""
    hosts = [
        replace(host, aggregates=a_host(metadata={'os': 'x', 'rack': 'y'}).aggregates)
        for host in HOSTS
    ]
    request = text_of_all(hosts, 'x' * LONG)
    if FILTERS[name].applies(request):
        reasons = reasons_of(FILTERS[name], request, hosts)
        assert max(map(len, reasons), default=0) <= MAX_SEARCHED_CHARACTERS


class Talkative(Filter):
    """Makes a long text of its own for each host."""

    def reject(self, host, request):
        return f'{"x" * LONG}{host.host}'


class TalkativeBatch(BatchFilter):
    """Makes long texts for all hosts at once."""

    def judge(self, hosts, request, candidates):
        return Verdicts([f'{"x" * LONG}{host.host}' for host in hosts], candidates)


@pytest.mark.parametrize('kind', [Talkative, TalkativeBatch])
def test_the_length_of_reasons_of_other_filters(kind):
    """Those of other packages are cut, too."""
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
def test_reasons_have_no_ids(name):
    """Of the caller and of the group: records show ids hashed, where the operator wants
    it."""
    group = a_group('anti-affinity', ['on h'], hosts=frozenset(['x']), name='a-group')
    host = a_host(
        'h', metadata=OTHER_PROJECTS, instances=['on h'], disabled=True, ram=0, vcpus=0
    )
    for policy in ('affinity', 'anti-affinity'):
        located = {
            'on h': (
                host if policy == 'anti-affinity' else a_host(metadata={'rack': 's'}),
            )
        }
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
        each = FILTERS[name]
        if each.applies(request):
            for reason in reasons_of(each, request, [host]):
                assert not [
                    text for text in (*IDS.values(), group.uuid) if text in reason
                ]
