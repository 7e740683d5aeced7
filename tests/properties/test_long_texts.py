# SPDX-License-Identifier: Apache-2.0
"""No request waits for the long text of another user.

``re`` and most of Python's functions on texts hold the interpreter's lock until their
return. A slow or a busy machine makes no difference for the tests. The measure is
processor time of the thread, the best of several tries, and is compared with the same
time for another text, or for a pass of a plain loop over the longest text.
"""

import gc
import io
import logging
import pkgutil
import re
import time
from contextlib import suppress
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points

import pytest

import novasched
from novasched.conf import redaction
from novasched.conf.logs import Hiding
from novasched.conf.redaction import Secrets, hide, one_line, redact
from novasched.conf.settings import Settings
from novasched.observe.records import render
from novasched.observe.records.from_decision import grouped, rejections_of
from novasched.observe.records.record import from_json, to_json
from novasched.observe.tracing import spans_of
from novasched.placement import query
from novasched.plugins import loading
from novasched.rpc import decode, versions
from novasched.rpc.faults import translate_error
from novasched.rpc.server import Serializer
from novasched.scheduler.errors import NovaschedError
from novasched.scheduler.filters.shared import judge
from novasched.scheduler.requirements.numa import topology
from novasched.tools import explain
from tests.lab.builders import a_host
from tests.lab.counting_placement import CountingPlacement
from tests.lab.decision_records import RecordedScheduler, record_of
from tests.lab.patterns import worst_texts
from tests.lab.wire import FLAVOR, a_spec, primitive

SIZE = 112 * 1024
"""Characters of the longest body that nova-api takes."""
MAX_STEP = 20
"""Limit for a step of a request, in passes over the longest text. A usual machine takes
a millisecond for a pass, and switches threads every five milliseconds."""
MAX_REDACTION = 100
"""Limit for the patterns of a function on a text that is not cut before, in passes over
the longest text. Linear patterns take less than a fifth of the limit."""
TIMES_AS_LONG = 8
MAX_GROWTH = 20
"""Limit for the growth of a pattern's time, on a text of eight times the length. Linear
time grows eight times, and quadratic time grows sixty-four times."""
MAX_TRIES = 10
RANDOM = 'kG7bQz2mXw9RtLp4'


def timed(function, *arguments):
    """The result of a function and its processor time in seconds."""
    began = time.thread_time()
    result = function(*arguments)
    return result, time.thread_time() - began


def seconds_of(function, *arguments, tries=3):
    """The processor time of a function in seconds, the best of several tries."""
    return min(timed(function, *arguments)[1] for _ in range(tries))


def a_pass():
    """Look at each character of the longest text."""
    return [ord(character) for character in 'x' * SIZE]


PASS_S = seconds_of(a_pass, tries=MAX_TRIES)


def measured(function, *arguments, limit=MAX_STEP):
    """The result of a function and its processor time in passes over the longest text.

    Where a try exceeds the limit, the best of several tries, with passes of the same
    time: the machine may have become slower.
    """
    best = float('inf')
    pass_s = PASS_S
    for _ in range(MAX_TRIES):
        result, seconds = timed(function, *arguments)
        best = min(best, seconds)
        if best < limit * pass_s:
            break
        pass_s = seconds_of(a_pass)
    return result, best / pass_s


def growth_of(pattern, make, size):
    """The processor time of a pattern on a text of a size, as a multiple of the time on
    an eighth of the size. The best of several tries where a try exceeds the limit."""
    texts = (make(size), make(size // TIMES_AS_LONG))
    long_s = short_s = float('inf')
    for _ in range(MAX_TRIES):
        long_s, short_s = (
            min(best, seconds_of(pattern.sub, '', text))
            for best, text in zip((long_s, short_s), texts, strict=True)
        )
        if long_s < MAX_GROWTH * short_s:
            break
    return long_s / short_s


@pytest.fixture(autouse=True, scope='module')
def few_objects_to_collect():
    """Keep the garbage collector away from the objects of the test run. A pass over all
    objects takes longer than a step may."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


def patterns():
    """Every compiled pattern of the product by its name."""
    names = {}
    for module in pkgutil.walk_packages(novasched.__path__, 'novasched.'):
        for name, value in vars(import_module(module.name)).items():
            if isinstance(value, re.Pattern):
                names.setdefault(value, f'{module.name}.{name}')
    for name, value in vars(Secrets([RANDOM, 'nova'])).items():
        if isinstance(value, re.Pattern):
            names[value] = f'Secrets.{name}'
    return {name: pattern for pattern, name in names.items()}


PATTERNS = patterns()
OF_OPERATORS = ('novasched.conf.loading', 'novasched.tools', 'novasched.cells')
"""Modules whose patterns meet no text of users. The patterns are linear, too."""
BY_HAND = {
    'schemes': lambda size: '@' + 'a://' * ((size - 1) // 4),
    'digits': lambda size: '1' * (size - 1) + 'x',
    'addresses': lambda size: '1.' * (size // 2),
    'quoted lines': lambda size: 'at a:1, ' * (size // 8),
    'headers': lambda size: 'x-token: ' * (size // 9),
    'passwords': lambda size: 'password=(' * (size // 10),
    'blanks': lambda size: '<' + ' ' * (size - 2) + 'x',
    'commas': lambda size: ',' * size,
    'predicates': lambda size: '>=0,' * (size // 4),
    'lists': lambda size: '[' * (size // 2) + ']' * (size // 2),
    'a query': lambda size: f'["and"{", true" * (size // 6 - 2)}]',
    'colours': lambda size: '\x1b[1m' * (size // 4),
    'from right to left': lambda size: '\u202e' * size,
    'plain': lambda size: 'x' * size,
}


@cache
def makers_for(name):
    """Makers of the worst texts for a pattern."""
    return worst_texts(PATTERNS[name], 2)


@cache
def attacks():
    """Makers of the worst texts for the patterns that meet texts of users."""
    makers = dict(BY_HAND)
    for name in PATTERNS:
        if not name.startswith(OF_OPERATORS):
            makers[name] = makers_for(name)[0]
    return makers


@pytest.mark.parametrize('name', PATTERNS)
def test_patterns_take_linear_time_on_the_worst_texts(name):
    """A pattern takes linear time on the worst texts made from the pattern."""
    for size in (8_000, SIZE):
        for make in makers_for(name):
            growth = growth_of(PATTERNS[name], make, size)
            assert growth < MAX_GROWTH, make(80)


@pytest.mark.parametrize(
    'bad', [r'([a-z]+://)[^ ]*@', r'\d+(\.\d+){3}', r'x[^]]*\]', r'a:.*?: b']
)
def test_the_generator_finds_a_worst_text_for_slow_patterns(bad):
    """The generator finds a worst text for every pattern that is not linear."""
    pattern = re.compile(bad)
    (make,) = worst_texts(pattern, 1)
    assert growth_of(pattern, make, 2_000) > MAX_GROWTH


@pytest.mark.parametrize(
    'function', [redact, hide, one_line], ids=lambda function: function.__name__
)
def test_redaction_takes_linear_time_on_the_worst_texts(function, monkeypatch):
    """Redaction is linear. The secrets matter: without known secrets, some patterns
    match nothing."""
    known = Secrets([RANDOM, 'nova', f'mysql://u:{RANDOM}@h/n'])
    monkeypatch.setattr(redaction.KNOWN, '__dict__', vars(known))
    limit = MAX_STEP if function is one_line else MAX_REDACTION
    for name, make in attacks().items():
        for size in (8_000, SIZE):
            _, passes = measured(function, make(size), limit=limit)
            assert passes < limit, name


def image(**properties):
    """An image with properties."""
    return primitive(
        'ImageMeta', '1.8', properties=primitive('ImageMetaProps', '1.44', **properties)
    )


def flavor(**fields):
    return {**FLAVOR, 'nova_object.data': {**FLAVOR['nova_object.data'], **fields}}


def named(kind, version, text, **fields):
    """An object with ``text`` as its name."""
    named_object = primitive(kind, version, **fields)
    named_object['nova_object.data']['name'] = text
    return named_object


def hint(name):
    return lambda text: {'scheduler_hints': {name: [text]}}


def near(text):
    return {'scheduler_hints': {'build_near_host_ip': ['10.0.0.1'], 'cidr': [text]}}


def many_hints(text):
    hints = {}
    for start in range(0, len(text), 128):
        piece = text[start : start + 64]
        hints[piece] = [piece]
    return {'scheduler_hints': hints}


def many_values(text):
    values = [text[start : start + 36] for start in range(0, len(text), 38)]
    return {'scheduler_hints': {'same_host': values}}


FIELDS = {
    'a hint': hint('foo'),
    'the name of a hint': lambda text: {'scheduler_hints': {text: ['foo']}},
    'many hints': many_hints,
    'a bad hint': lambda text: {'scheduler_hints': {text: 'no list'}},
    'same_host': hint('same_host'),
    'different_host': hint('different_host'),
    'many of same_host': many_values,
    'group': hint('group'),
    'build_near_host_ip': hint('build_near_host_ip'),
    'cidr': near,
    'query': hint('query'),
    'a property': lambda text: {'image': image(os_command_line=text)},
    'the name of a property': lambda text: {'image': image(**{text: 'x'})},
    'the version of a hypervisor': lambda text: {
        'image': image(hw_architecture='x86_64', img_hv_requested_version=text)
    },
    'an architecture': lambda text: {'image': image(hw_architecture=text)},
    'a page size': lambda text: {'image': image(hw_mem_page_size=text)},
    'a policy of CPUs': lambda text: {'image': image(hw_cpu_policy=text)},
    'a mask': lambda text: {
        'image': image(hw_cpu_realtime_mask=text),
        'flavor': flavor(
            extra_specs={'hw:cpu_policy': 'mixed', 'hw:cpu_realtime': '1'}
        ),
    },
    'bits of addresses': lambda text: {'image': image(hw_maxphysaddr_bits=text)},
    'a trait': lambda text: {'image': image(traits_required=[text])},
    'the version of a TPM': lambda text: {'image': image(hw_tpm_version=text)},
    'a bus': lambda text: {'image': image(hw_disk_bus=text)},
    'the name of an image': lambda text: {
        'image': named('ImageMeta', '1.8', text, id=text, disk_format=text)
    },
    'the name of a flavor': lambda text: {
        'flavor': flavor(name=text, description=text)
    },
    'an extra spec': lambda text: {
        'flavor': flavor(extra_specs={'capabilities:x': text})
    },
    'the name of an extra spec': lambda text: {
        'flavor': flavor(
            extra_specs={
                text: 'x',
                f'resources{text}': '1',
                f'trait:{text}': 'required',
            }
        )
    },
    'a zone': lambda text: {'availability_zone': text},
    'a project': lambda text: {'project_id': text, 'user_id': text},
    'a group': lambda text: {
        'instance_group': named(
            'InstanceGroup',
            '1.11',
            text,
            uuid=text,
            policy='anti-affinity',
            members=[text],
            hosts=[text],
            _rules={'max_server_per_host': text},
        )
    },
    'a group of another policy': lambda text: {
        'instance_group': primitive('InstanceGroup', '1.11', policy=text)
    },
    'ignored hosts': lambda text: {'ignore_hosts': [text]},
    'forced hosts': lambda text: {'force_hosts': [text], 'force_nodes': [text]},
    'a destination': lambda text: {
        'requested_destination': primitive('Destination', '1.4', host=text)
    },
    'a security group': lambda text: {
        'security_groups': primitive(
            'SecurityGroupList', '1.1', objects=[named('SecurityGroup', '1.2', text)]
        )
    },
    'the context': lambda text: {},
}
PLAIN_FIELDS = {
    'a policy of CPUs', 'the version of a TPM', 'a bus', 'bits of addresses', 'a group',
    'a group of another policy', 'the name of a flavor', 'a project', 'ignored hosts',
    'forced hosts', 'a destination', 'a security group', 'an architecture',
    'a page size', 'the name of an image',
}  # fmt: skip
"""Fields that the scheduler compares, counts or looks up. The texts made by hand
suffice, since logs and records treat the fields like hints."""
CONTEXT = {'request_id': 'req-1', 'user_id': 'u', 'project_id': 'p'}
FILTERS = tuple(sorted(entry_points(group='novasched.filters').names))
HOST = a_host(
    'h1',
    host_ip='10.0.0.9',
    hypervisor_version=8002000,
    cpu_info='{"maxphysaddr": {"bits": 46}}',
    supported_instances=(('x86_64', 'kvm', 'hvm'),),
    metadata={'os_command_line': 'x', 'filter_tenant_id': 'p'},
)
USUAL = (
    'ComputeFilter',
    'ComputeCapabilitiesFilter',
    'DifferentHostFilter',
    'ImagePropertiesFilter',
    'SameHostFilter',
    'ServerGroupAntiAffinityFilter',
    'SimpleCIDRAffinityFilter',
    'JsonFilter',
)
SETTINGS = Settings(
    enabled_filters=FILTERS,
    failure_domain_key='filter_tenant_id',
    isolated_images=('x',),
)
JUDGES = loading.filters(SETTINGS)
PLACEMENT = CountingPlacement({HOST.uuid: 10**9})
DECIDED = RecordedScheduler(
    [HOST],
    PLACEMENT,
    [plugin for plugin in JUDGES if plugin.name in USUAL],
    settings=SETTINGS,
)


@pytest.fixture
def log():
    """The log of the product, with the verdicts on each host. The capture of pytest
    would format every text again, and keep the texts in memory."""
    output = io.StringIO()
    handler = logging.StreamHandler(output)
    handler.setFormatter(Hiding(logging.Formatter('%(message)s')))
    logger = logging.getLogger('nova')
    level = logger.level
    logger.setLevel(logging.DEBUG)
    logger.propagate = False
    logger.addHandler(handler)
    yield output
    logger.removeHandler(handler)
    logger.propagate = True
    logger.setLevel(level)


def decoded(spec, context):
    """The request in a message."""
    arguments = {'spec_obj': spec, 'instance_uuids': ['a']}
    entity = Serializer().deserialize_entity(context, arguments)
    return decode.request(versions.read(entity), context)


def decided(request):
    """Decide a request with all filters.

    An error ends a decision early. So build Placement's query and the NUMA topology
    before the decision.
    """
    with suppress(NovaschedError):
        query.build_all(request, SETTINGS)
    with suppress(NovaschedError):
        topology(request.flavor, request.requirements.properties)
    PLACEMENT.allocations.clear()
    return DECIDED.ask(request)


def judged(plugin, request):
    """The reason of a filter against a host, as the log and the record have the
    reason."""
    reasons, _ = judge(plugin, [HOST], request, None)
    texts = [reason for reason in reasons if reason]
    return [*map(one_line, texts)], grouped(dict.fromkeys(texts, 1))


def printed(record, rejections):
    """The output of ``novaschedctl explain`` for a record."""
    return [
        explain.as_text(record, 0, None, rejections),
        explain.as_text(record, 0, 'h1', rejections),
        explain.as_json(record, 0, None, None),
        render.entry(record),
    ]


class Steps:
    """Takes a message through all steps of a request, and measures each step in passes
    over the longest text."""

    def __init__(self):
        self.passes = {}

    def __call__(self, name, function, *arguments):
        result, self.passes[name] = measured(function, *arguments)
        return result

    def follow(self, fields, context):
        try:
            request = self('decode', decoded, a_spec(**fields), context)
        except NovaschedError as error:
            self('refuse', translate_error, error)
            return []

        for plugin in JUDGES:
            if plugin.applies(request):
                self(plugin.name, judged, plugin, request)
        decision = self('decide', decided, request)
        record = self('record', record_of, decision)
        rejections = self('reasons', rejections_of, decision)
        self('keep', lambda: from_json(to_json(record)))
        self('trace', spans_of, decision, record)
        if decision.failure is not None:
            self('refuse', translate_error, NovaschedError(decision.failure))
        return self('tell', printed, record, rejections)


@pytest.mark.parametrize('field', FIELDS)
def test_no_request_waits_for_a_long_text(field, log, unchecked_scopes):
    """No step of a request with a long text in the field exceeds the time of a switch
    of threads."""
    makers = BY_HAND if field in PLAIN_FIELDS else attacks()
    for name, make in makers.items():
        text = make(SIZE)
        values = dict(CONTEXT)
        if field == 'the context':
            for key in ('user_name', 'project_name', 'request_id', 'global_request_id'):
                values[key] = text
        context = Serializer().deserialize_context(values)

        steps = Steps()
        steps.follow(FIELDS[field](text), context)

        for step, passes in steps.passes.items():
            assert passes < MAX_STEP, f'{step} of {name}: {passes:.1f} passes'
