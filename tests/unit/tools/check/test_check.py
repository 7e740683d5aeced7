# SPDX-License-Identifier: Apache-2.0
"""Findings on names and values in nova.conf, on differences from nova-scheduler, on
plugins, and on timeouts."""

import sys
import threading

import pytest

from novasched.conf import loading
from novasched.conf.settings import DEFAULT_FILTERS
from novasched.tools.check import differences, inspection, options
from novasched.tools.check.findings import Finding, Level, Question, answers
from tests.unit.own_process import a_process_of_its_own  # noqa: F401  (a fixture of all tests here)


@pytest.fixture
def load(tmp_path):
    """Load a nova.conf with a text; returns the configuration and the written
    options."""

    def _load(text):
        (tmp_path / 'nova.conf').write_text(text)
        return options.load([str(tmp_path / 'nova.conf')], [])

    return _load


@pytest.fixture
def read(load):
    """The input of the checks for a nova.conf with a text."""

    def _read(text):
        conf, _ = load(text)
        settings = loading.settings(conf), loading.service_settings(conf)
        return options.NovaConf(conf, *settings, timeout=60.0)

    return _read


OLD = '. novasched still reads the old name, recent releases of nova do not'
OTHERS = 'ok other options: {} options of other services are not checked'


def subjects_of(findings):
    """Level and subject of each finding, in one text."""
    return ', '.join(f'{finding.level} {finding.subject}' for finding in findings)


@pytest.mark.parametrize(
    ('text', 'found'),
    [
        ('[filter_scheduler]\nmax_io_ops_per_host = 3', ''),
        ('[DEFAULT]\ndebug = true\nlog-file = x\ntransport_url = rabbit://', ''),
        (
            '[database]\nconnection = x\nmax_pool_size = 5\n[api_database]\nmax_retries = 1',
            '',
        ),
        ('[oslo_messaging_rabbit]\nrabbit_ha_queues = true\nssl = true', ''),
        (
            '[placement]\nauth_type = password\nauth_url = x\nusername = y\nregion_name = z',
            '',
        ),
        ('[placement]\nauth_type = admin_token\nendpoint = x\ntoken = y', ''),
        ('[placement]\nauth_type = nonsense\npassword = y', ''),
        ('[scheduler]\ndiscover_hosts_in_cells_interval = 300', ''),
        (
            '[filter_scheduler]\nmax_io_ops_per_hots = 3',
            'warning [filter_scheduler] max_io_ops_per_hots: unknown option; is it max_io_ops_per_host?',
        ),
        ('[scheduler]\nzzz = 3', 'warning [scheduler] zzz: unknown option'),
        (
            '[placement]\nmy word = 3',
            'warning [placement] (no name): unknown option',
        ),
        (
            '[filter_schedulr]\nenabled_filters = x',
            f'warning [filter_schedulr]: unknown group; is it [filter_scheduler]?\n{OTHERS.format(1)}',
        ),
        (
            '[ DEFAULT ]\ndebug = true',
            f'warning [ DEFAULT ]: unknown group; is it [DEFAULT]?\n{OTHERS.format(1)}',
        ),
        (
            '[Scheduler]\nworkers = 1',
            f'warning [Scheduler]: unknown group; is it [scheduler]?\n{OTHERS.format(1)}',
        ),
        (
            '[oslo_messaging_rabbit]\nheartbeat_in_pthread = true',
            'note [oslo_messaging_rabbit] heartbeat_in_pthread: ignored: heartbeats are '
            'always sent by a native thread',
        ),
        (
            '[oslo_messaging_rabbit]\nrabbit_hosts = a,b',
            'warning [oslo_messaging_rabbit] rabbit_hosts: ignored: oslo.messaging has '
            'removed the option; set [DEFAULT] transport_url',
        ),
        (
            '[DEFAULT]\nmanager_shutdown_timeout = 20',
            'note [DEFAULT] manager_shutdown_timeout: ignored: graceful_shutdown_timeout '
            'is the time for requests in progress',
        ),
        (
            '[scheduler]\nhost_manager = acme.HostManager',
            'warning [scheduler] host_manager: ignored: novasched has one host manager, '
            'and acme.HostManager may offer other hosts',
        ),
        (
            '[DEFAULT]\nscheduler_default_filters = x',
            'warning [DEFAULT] scheduler_default_filters: deprecated: use '
            f'[filter_scheduler] enabled_filters{OLD}',
        ),
        (
            '[DEFAULT]\nscheduler_max_attempts = 1\n[scheduler]\nmax_attempts = 2',
            'note [DEFAULT] scheduler_max_attempts: deprecated, and overridden '
            'by [scheduler] max_attempts',
        ),
        (
            '[placement]\nauth_plugin = none',
            'note [placement] auth_plugin: deprecated: use [placement] auth_type',
        ),
        (
            '[placement]\nos_region_name = x',
            'note [placement] os_region_name: deprecated: use [placement] region_name',
        ),
        (
            '[workarounds]\ndisable_fallback_pcpu_qery = x',
            OTHERS.format(1),
        ),
        (
            '[DEFAULT]\nmy_ip = x\n[libvirt]\nvirt_type = y\n[workarounds]\ndisable_rootwrap = z',
            OTHERS.format(3),
        ),
    ],
)
def test_unknown_ignored_and_deprecated_options_are_found(load, text, found):
    """Unknown names in groups of the scheduler are found; options of other services are
    counted."""
    _, written = load(text)
    findings = options.check_names(written, options.known_options(written))
    lines = [f'{each.level} {each.subject}: {each.text}' for each in findings]
    assert '\n'.join(lines) == found


@pytest.mark.parametrize(
    ('text', 'subject', 'why'),
    [
        ('[scheduler]\nmax_attempts = many', '[scheduler] max_attempts', "'many'"),
        ('[scheduler]\nmax_attempts = 0', '[scheduler] max_attempts', 'equal to 1'),
        ('[DEFAULT]\nscheduler_max_attempts = x', '[scheduler] max_attempts', "'x'"),
        ('[database]\nmax_retries = x', '[database] max_retries', "'x'"),
        ('[placement]\ntimeout = x', '[placement] timeout', "'x'"),
        (
            '[oslo_messaging_rabbit]\nssl = perhaps',
            '[oslo_messaging_rabbit] ssl',
            "'perhaps'",
        ),
        (
            '[database]\nconnection = a://b:c$secret@d',
            '[database] connection',
            'written $$',
        ),
        (
            '[DEFAULT]\ntransport_url = a://b:c$secret@d',
            '[DEFAULT] transport_url',
            'written $$',
        ),
    ],
)
def test_an_invalid_value_is_found_and_replaced_by_the_default(
    load, text, subject, why
):
    """An invalid value is found for options of all libraries, and replaced by the
    default."""
    conf, written = load(text)
    all_known = options.known_options(written)
    [found] = options.check_values(conf, written, all_known)
    assert found.subject == subject
    assert why in found.text
    assert 'secret' not in found.text
    assert list(options.check_values(conf, {}, all_known)) == []
    assert loading.settings(conf).enabled_filters == DEFAULT_FILTERS


@pytest.mark.parametrize(
    ('down_time', 'metrics', 'subjects'),
    [
        ('61', 'a=1', []),
        ('5', 'a=1, b', ['metrics_weight_setting', '[DEFAULT] service_down_time']),
    ],
)
def test_ignored_and_corrected_values_are_found(load, down_time, metrics, subjects):
    """Ignored and corrected values are found."""
    text = f'[DEFAULT]\nservice_down_time = {down_time}\n[metrics]\nweight_setting = {metrics}'
    conf, written = load(text)
    found = differences.check_together(loading.settings(conf), written)
    assert [finding.subject for finding in found] == subjects


@pytest.mark.parametrize(
    ('text', 'why'),
    [
        ('[DEFAULT]\nfine = 1\nsecret', 'line 3: '),
        ('secret = 1', 'line 1: '),
        ('[secret', 'line 1: '),
        ('[DEFAULT]\ndebug = perhaps secret\npassword = secret', 'perhaps ***'),
    ],
)
def test_the_error_of_an_unreadable_file_shows_no_secret(load, text, why):
    """An error does not quote the broken line or value, which may be a password."""
    with pytest.raises(options.UnreadableFile) as caught:
        load(text)
    assert why in str(caught.value)
    assert 'secret' not in str(caught.value)


def test_named_folders_are_read_after_named_files(tmp_path):
    """As in the daemon, the last value counts."""
    file = tmp_path / 'nova.conf'
    folder = tmp_path / 'nova.conf.d'
    folder.mkdir()
    file.write_text('[scheduler]\nmax_attempts = 1')
    (folder / 'b.conf').write_text('[scheduler]\nmax_attempts = 3')
    (folder / 'a.conf').write_text('[scheduler]\nmax_attempts = 2')
    conf, written = options.load([str(file)], [str(folder)])
    assert written['scheduler']['max_attempts'] == ['1', '2', '3']
    assert conf.scheduler.max_attempts == 3


def test_default_folders_of_the_daemon_are_read_before_named_files(
    tmp_path, monkeypatch
):
    """The daemon's default folders are read before named files, and their values are
    checked."""
    monkeypatch.setenv('HOME', str(tmp_path))
    file = tmp_path / 'any.conf'
    folder = tmp_path / '.nova' / 'novasched.conf.d'
    folder.mkdir(parents=True)
    file.write_text('[scheduler]\nmax_attempts = 2')
    (folder / 'a.conf').write_text('[scheduler]\nmax_attempts = 1\nworkers = many')
    conf, written = options.load([str(file)], [])

    assert written['scheduler'] == {'max_attempts': ['1', '2'], 'workers': ['many']}
    assert conf.scheduler.max_attempts == 2

    [found] = options.check_values(conf, written, options.known_options(written))
    assert found.subject == '[scheduler] workers'

    (folder.parent / 'nova.conf').write_text('[scheduler]\nmax_attempts = 3\n')
    conf, written = options.load([], [])
    assert written['scheduler']['max_attempts'] == ['3', '1']
    assert conf.scheduler.max_attempts == 1


CALM = '[novasched]\nin_flight_timeout = 0\n'


@pytest.mark.parametrize(
    ('text', 'found'),
    [
        (CALM, ''),
        ('', 'note [novasched] in_flight_timeout'),
        (f'{CALM}[scheduler]\ndriver = chance_scheduler', 'note [scheduler] driver'),
        (f'{CALM}[scheduler]\nworkers = 4', 'note [scheduler] workers'),
        (
            f'{CALM}[filter_scheduler]\nenabled_filters = FailureDomainFilter',
            'note filter FailureDomainFilter',
        ),
        (
            f'{CALM}[scheduler]\nquery_placement_for_availability_zone = false',
            'note [scheduler] query_placement_for_availability_zone, warning [filter_scheduler] enabled_filters',
        ),
        (
            f'{CALM}[filter_scheduler]\nenabled_filters = RamFilter,ComputeFilter',
            'note filter RamFilter',
        ),
    ],
)
def test_options_with_another_meaning_than_in_nova_are_found(read, text, found):
    """A finding for each option with another meaning than in nova-scheduler."""
    assert subjects_of(differences.check_differences(read(text))) == found


@pytest.mark.parametrize(
    ('text', 'found'),
    [
        ('[profiler]\nhmac_keys = x', ''),
        ('[profiler]\nenabled = false', ''),
        ('[profiler]\nenabled = true', 'warning [profiler] enabled'),
        (
            '[profiler]\nenabled = 1\n[novasched]\ntracing_endpoint = http://x',
            'note [profiler] enabled',
        ),
        (
            '[workarounds]\ndisable_group_policy_check_upcall = true',
            'note [workarounds] disable_group_policy_check_upcall',
        ),
        (
            '[workarounds]\nskip_reserve_in_use_ironic_nodes = yes',
            'warning [workarounds] skip_reserve_in_use_ironic_nodes',
        ),
        (
            '[workarounds]\nskip_reserve_in_use_ironic_nodes = false\ndisable_rootwrap = true',
            '',
        ),
    ],
)
def test_options_of_other_services_with_an_effect_are_found(load, text, found):
    """A finding for each enabled option of another service with an effect on a
    scheduler's choice."""
    conf, written = load(text)
    findings = differences.check_others_options(written, loading.service_settings(conf))
    assert subjects_of(findings) == found


def test_a_plugin_that_fails_is_found_with_the_reason(read, tmp_path, monkeypatch):
    """Each plugin is loaded alone, and a failure has its reason. After a plugin that
    exits, the check goes on."""
    (tmp_path / 'leaving.py').write_text('import sys\nsys.exit(3)\n')
    monkeypatch.syspath_prepend(str(tmp_path))
    settings = read(
        '[filter_scheduler]\n'
        'enabled_filters = ComputeFilter,NoSuchFilter,TrustedFilter,ImagePropertiesFilter\n'
        'available_filters = nova.scheduler.filters.all_filters\n'
        'available_filters = no.such.module\n'
        'weight_classes = nova.scheduler.weights.ram.RAMWeigher,leaving.Weigher,no.Weigher\n'
        '[scheduler]\ndriver = fake_scheduler\n'
    )
    found = list(inspection.check_plugins(settings))

    assert subjects_of(found).split(', ') == [
        'error available filter no.such.module',
        'ok filter ComputeFilter',
        'error filter NoSuchFilter',
        'error filter TrustedFilter',
        'ok filter ImagePropertiesFilter',
        'ok weigher nova.scheduler.weights.ram.RAMWeigher',
        'error weigher leaving.Weigher',
        'error weigher no.Weigher',
        'error driver fake_scheduler',
    ]

    texts = {each.subject: each.text for each in found}
    assert 'ModuleNotFoundError' in texts['available filter no.such.module']
    assert 'attestation' in texts['filter TrustedFilter']
    assert texts['weigher leaving.Weigher'] == 'it ends the process with sys.exit(3)'


@pytest.mark.parametrize(('there', 'level'), [(True, 'ok'), (False, 'error')])
def test_libraries_for_traces_are_required_if_traces_are_enabled(
    read, monkeypatch, there, level
):
    """If traces are enabled, missing libraries are an error with the command to install
    them."""
    if not there:
        monkeypatch.delitem(sys.modules, 'novasched.observe.tracing', raising=False)
        monkeypatch.setitem(sys.modules, 'opentelemetry', None)
    url = '[novasched]\ntracing_endpoint = http://me:Kraken77@collector\n'
    *_, last = inspection.check_plugins(read(url))
    assert (str(last.level), last.subject) == (level, 'libraries for traces')
    assert there or 'pip install novasched[tracing]' in last.text
    assert 'Kraken77' not in last.text


def test_the_page_needs_metrics_bind(read):
    """The page needs metrics_bind."""
    assert [*inspection.check_page(read(''))] == []
    for bind, level in (('', 'error'), ('metrics_bind = 127.0.0.1:9105', 'ok')):
        [found] = inspection.check_page(read(f'[novasched]\npage = true\n{bind}'))
        assert (str(found.level), found.subject) == (level, '[novasched] page')


def a_finding(text):
    return Finding(Level.OK, 'subject', text)


def test_findings_keep_the_order_despite_timeouts_and_failures():
    """Findings keep the order of the questions. Timeouts and failures add errors."""
    forever = threading.Event()

    def silent():
        yield a_finding('first')
        forever.wait()

    def failing():
        yield a_finding('second')
        raise RuntimeError('unforeseen')

    def leaving():
        sys.exit('enough')

    def quick():
        return [a_finding('last')]

    questions = []
    for ask in (silent, failing, leaving, quick):
        questions.append(Question('subject', ask, area='area'))
    found = answers(questions, 0.3)
    forever.set()

    assert {each.area for each in found} == {'area'}
    assert [(str(each.level), each.text) for each in found] == [
        ('ok', 'first'),
        ('error', 'no answer within 0.3 s'),
        ('ok', 'second'),
        ('error', 'RuntimeError: unforeseen'),
        ('error', 'SystemExit: enough'),
        ('ok', 'last'),
    ]
