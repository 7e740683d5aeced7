# SPDX-License-Identifier: Apache-2.0
"""A realistic cloud in memory with decisions, and its page. Requests obey the rules of
WSGI, and the parser of pages is as strict as HTML."""

import itertools
import time
from contextlib import closing
from dataclasses import dataclass, replace
from html.parser import HTMLParser
from random import Random
from typing import Any
from urllib.parse import quote, unquote_to_bytes
from uuid import UUID
from wsgiref.util import setup_testing_defaults
from wsgiref.validate import validator

from novasched.conf.settings import Settings
from novasched.observe.page.app import Page
from novasched.observe.page.hosts import CellView
from novasched.observe.page.watch import Watch
from novasched.observe.records.from_decision import record_of, rejections_of
from novasched.observe.records.store import RecordWriter
from novasched.scheduler.model.host import Aggregate, Host, capacity_of
from novasched.scheduler.model.numa import HostCell, HostTopology, Pages
from novasched.scheduler.model.usual_guests import (
    NO_USUAL_GUESTS,
    UsualGuest,
    UsualGuests,
)
from tests.lab.builders import a_flavor, a_host, a_request, a_uuid, numbered_uuids
from tests.lab.counting_placement import CountingPlacement
from tests.lab.decision_records import RecordedScheduler

CELLS = ('north', 'south', 'west')
ZONES = ('az1', 'az2', 'az3')
RACK = 250
GIB = 1024
FILTERS = (
    'ComputeFilter',
    'AvailabilityZoneFilter',
    'RamFilter',
    'DiskFilter',
    'CoreFilter',
)
FLAVORS = [
    a_flavor(name='m1.small', vcpus=1, memory_mb=2 * GIB, root_gb=20),
    a_flavor(name='m1.large', vcpus=4, memory_mb=8 * GIB, root_gb=80),
    a_flavor(name='r1.huge', vcpus=16, memory_mb=240 * GIB, root_gb=100),
    a_flavor(name='d1.store', vcpus=4, memory_mb=16 * GIB, root_gb=9000),
]
PINNED = a_flavor(
    {'hw:cpu_policy': 'dedicated'}, name='p1.large', vcpus=4, memory_mb=8 * GIB
)
GPU = a_flavor({'resources1:VGPU': '1'}, name='g1.large', vcpus=4, memory_mb=8 * GIB)
NOVEMBER = 1795282629.0


class Cells:
    """A reader of hosts for the page.

    :ivar known: hosts by the names of their cells.
    :ivar silent: the names of cells that do not answer.
    :ivar error: an error of all readings.
    :ivar readings: number of readings.
    :ivar usual: the usual guests.
    """

    def __init__(self, hosts):
        self.known = dict(hosts)
        self.silent: set[str] = set()
        self.error: Exception | None = None
        self.readings = 0
        self.old = False
        self.usual = NO_USUAL_GUESTS

    def read(self):
        self.readings += 1
        if self.error:
            raise self.error
        cells = {}
        for name, hosts in self.known.items():
            cells[name] = CellView(name, hosts, 0.0)
        for name in self.silent:
            cells[name] = CellView(name, answers=False)
        return cells, self.old, self.usual


def cloud(count, seed=1):
    """Hosts by cell. The load of hosts differs by rack, and some hosts are down or
    disabled.

    :param count: number of hosts.
    """
    random = Random(seed)
    cells: dict[str, list[Host]] = {name: [] for name in CELLS}
    for number in range(count):
        cell = CELLS[min(number * 5 // (2 * count), 2)]
        cells[cell].append(_host(number, cell, count, random))
    return cells


def decided(path, hosts, count, seed=2):
    """Decide requests, and write the records of the decisions into a file, with the
    reasons against each host. The recorder would leave reasons out on a slow machine.

    :param count: number of requests.
    """
    full = CountingPlacement({host.uuid: 10**6 for host in hosts if host.service.up})
    driver = RecordedScheduler(
        hosts,
        full,
        settings=Settings(enabled_filters=FILTERS),
        clock=time.perf_counter,
    )
    random = Random(seed)
    with closing(RecordWriter(str(path), 1000, 10)) as writer:
        for number in range(count):
            decision = driver.ask(_request(number, random))
            id_ = UUID(a_uuid(f'record-{number}')).hex
            record = record_of(decision, id_, NOVEMBER + 37 * number)
            writer.write(record, rejections_of(decision))


def _request(number, random):
    servers = 1
    if number % 7 == 3:
        servers = 3
    return a_request(
        flavor=random.choice(FLAVORS),
        availability_zone=random.choice((None, *ZONES)),
        count=servers,
        instance_uuids=tuple(numbered_uuids(f'server-{number}-', servers)),
        request_id=f'req-{a_uuid(f"request-{number}")}',
    )


def a_page(reader, decisions=None, remote=False, zone='nova', **watch):
    """A page.

    :param reader: a :class:`Cells`.
    :param decisions: the path of a file with records.
    :param watch: arguments of the watch.
    """
    file = None
    if decisions:
        file = str(decisions)
    return Page(Watch(lambda: reader.read, **watch), file, zone, remote)


def a_site(folder, count, requests):
    """The page of a cloud with decisions, and the path of the records.

    :param folder: the directory of the records.
    :param count: number of hosts.
    :param requests: number of decisions.
    """
    cells = cloud(count)
    hosts = [*itertools.chain.from_iterable(cells.values())]
    path = folder / 'decisions'
    decided(path, hosts, requests)
    reader = Cells(cells)
    guests = [UsualGuest(flavor, 10 * count) for flavor in (*FLAVORS, PINNED, GPU)]
    reader.usual = UsualGuests(tuple(guests), capacity_of(hosts))
    return a_page(reader, path, timeout=60.0), path


def _host(number, cell, count, random):
    rack = number // RACK
    load = min(max(Random(rack).uniform(0.25, 0.95) + random.gauss(0, 0.14), 0.0), 1.0)
    cores = random.choice((32, 32, 64))
    ram = cores * 8 * GIB
    disk = cores * 120
    bad = random.random()
    host = a_host(
        f'compute-{number + 1:0{len(str(count))}d}',
        ram=round(ram * (1 - load) / GIB) * GIB,
        total_usable_ram_mb=ram,
        disk_gb=round(disk * (1 - load * random.uniform(0.3, 1.0))),
        total_usable_disk_gb=disk,
        vcpus=cores,
        vcpus_used=round(cores * 4 * load * random.uniform(0.6, 1.0)),
        cpu_allocation_ratio=4.0,
        cell=cell,
        up=bad > 0.012,
        disabled=0.012 < bad < 0.02 or (rack == 4 and number % 25 < 6),
        why='rack 4: new switches',
        num_instances=round(load * 40),
        hypervisor_type='QEMU',
        hypervisor_version=8002000,
        numa=_numa(cores, ram, load, random) if number % 4 else lambda: None,
    )
    names = [f'rack-{rack + 1:02d}']
    if number % 4:
        names.append('pinned')
    zone = {'availability_zone': ZONES[number % len(ZONES)]}
    aggregates = [Aggregate(1, None, zone['availability_zone'], zone)]
    aggregates += [Aggregate(i, None, name, {}) for i, name in enumerate(names, 2)]
    return replace(host, aggregates=tuple(aggregates))


def _numa(cores, ram, load, random):
    half = cores // 2
    cells = []
    for cell in range(2):
        cpus = range(cell * half, (cell + 1) * half)
        pinnable = frozenset(cpus[half // 4 :])
        used = round(len(pinnable) * min(1.0, load * random.uniform(0.5, 1.3)))
        memory = ram // 2
        taken = round(memory * load / GIB) * GIB
        cells.append(
            HostCell(
                cell,
                frozenset(cpus[: half // 4]),
                memory,
                pcpuset=pinnable,
                cpu_usage=round(half * load),
                memory_usage=taken,
                pinned_cpus=frozenset(sorted(pinnable)[:used]),
                mempages=(
                    Pages(4, memory * 256, taken * 256),
                    Pages(1048576, 64, round(64 * load)),
                ),
            )
        )
    topology = HostTopology(tuple(cells))
    return lambda: topology


VOID = {'br', 'input', 'link', 'meta', 'rect'}
"""Elements without an end tag."""


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    text: str


def ask(page, path='/', query='', **environ):
    """The answer of a page to a path without percent-encoding."""
    return ask_raw(page, quote(path, safe='/'), query, **environ)


def ask_raw(page, path, query='', **environ):
    """The answer of a page to a percent-encoded path."""
    values = {
        'REMOTE_ADDR': '127.0.0.1',
        'HTTP_HOST': 'localhost:9100',
        'SCRIPT_NAME': '',
        'PATH_INFO': unquote_to_bytes(path).decode('latin-1'),
        'QUERY_STRING': query,
        **environ,
    }
    setup_testing_defaults(values)

    heads: list[Any] = []
    body = validator(page)(
        values, lambda status, headers, *_: heads.append((status, headers))
    )
    text = b''.join(body).decode()
    body.close()
    ((status, headers),) = heads

    if values['REQUEST_METHOD'] == 'GET':
        assert dict(headers)['Content-Length'] == str(len(text.encode()))
    return Answer(int(status[:3]), dict(headers), text)


class Seen(HTMLParser):
    """The elements of a page with their attributes, and the text of the page."""

    def __init__(self):
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.open: list[str] = []

    def handle_starttag(self, tag, attrs):
        assert len(dict(attrs)) == len(attrs), (
            f'an attribute of {tag} stands there twice'
        )
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)

    def all(self, tag):
        return [attributes for name, attributes in self.elements if name == tag]

    @property
    def text(self):
        return ' '.join(' '.join(self.texts).split())


def seen(answer):
    """The elements and the text of a page, whose elements must be well-formed."""
    parser = Seen()
    parser.feed(answer.text)
    parser.close()
    assert parser.open == []
    ids = [attributes['id'] for _, attributes in parser.elements if 'id' in attributes]
    assert len(ids) == len(set(ids))
    return parser
