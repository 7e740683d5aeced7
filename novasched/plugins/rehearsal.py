# SPDX-License-Identifier: Apache-2.0
"""Call plugins of other packages once before the first request, about a made-up host.

A plugin may load and still fail at every request, for instance if it reads an option
that is not declared. Only an error of this kind proves that the plugin fails: any other
error may come from the made-up data, which differs from the hosts of a cloud.
"""

import logging
from collections.abc import Sequence

from oslo_config import cfg

from novasched.concurrency.child import ChildFailed, in_child
from novasched.conf.errors import ConfigError
from novasched.conf.redaction import hide
from novasched.plugins.loading import PLUGIN_TIMEOUT_S, is_foreign
from novasched.scheduler.filters import Filter
from novasched.scheduler.filters.shared import judge
from novasched.scheduler.model.flavor import Flavor, Image
from novasched.scheduler.model.host import Aggregate, Host, Instance, Service
from novasched.scheduler.model.request import Request
from novasched.scheduler.weighers import Weigher

LOG = logging.getLogger(__name__)

PROJECT = '6f70656e737461636b2d6e6f76610000'
USER = '6e6f766173636865642d757365720000'
HOST = Host(
    host='made-up-host',
    nodename='made-up-host',
    uuid='00000000-0000-4000-8000-000000000001',
    cell_uuid='00000000-0000-4000-8000-000000000002',
    service=Service('made-up-host'),
    total_usable_ram_mb=65536,
    free_ram_mb=63488,
    total_usable_disk_gb=1000,
    free_disk_mb=1003520,
    disk_mb_used=20480,
    vcpus_total=16,
    vcpus_used=1,
    num_instances=1,
    host_ip='192.0.2.1',
    hypervisor_type='QEMU',
    hypervisor_version=8002002,
    hypervisor_hostname='made-up-host',
    supported_instances=(('x86_64', 'kvm', 'hvm'),),
    aggregates=(
        Aggregate(1, '00000000-0000-4000-8000-000000000003', 'made-up-aggregate'),
    ),
    instances={
        '00000000-0000-4000-8000-000000000004': Instance(
            '00000000-0000-4000-8000-000000000004'
        )
    },
)
REQUEST = Request(
    flavor=Flavor('made-up-flavor', 'made-up', 1, vcpus=1, memory_mb=2048, root_gb=20),
    instance_uuids=('00000000-0000-4000-8000-000000000005',),
    instance_uuid='00000000-0000-4000-8000-000000000005',
    project_id=PROJECT,
    user_id=USER,
    request_id='req-00000000-0000-4000-8000-000000000006',
    image=Image('00000000-0000-4000-8000-000000000007', 'made-up-image', 'qcow2'),
)


def rehearse(plugin: Filter | Weigher) -> str | None:
    """Ask a plugin about the made-up host.

    :returns: an error that may also fail real requests; None if the plugin answers.
    :raises ConfigError: the plugin reads an option that is not declared.
    """
    try:
        _ask(plugin)
    except (cfg.NoSuchOptError, cfg.NoSuchGroupError) as error:
        option = '[filter_scheduler] weight_classes'
        if isinstance(plugin, Filter):
            option = '[filter_scheduler] enabled_filters'
        why = f'the plugin reads {_missing(error)}, which nova does not declare'
        raise ConfigError(option, plugin.name, why) from None
    except Exception as error:
        LOG.debug('%s fails about a made-up host', plugin.name, exc_info=True)
        why = f'{type(error).__name__}: {hide(error)}'
        return (
            f'{plugin.name} raised {why} about a made-up host and request; if it does'
            ' so about a host of the cloud, requests fail'
        )
    return None


def _ask(plugin: Filter | Weigher) -> None:
    """Call the methods that the pipeline calls for each request."""
    plugin = plugin.for_one_request(None)
    if not plugin.applies(REQUEST):
        return
    plugin.request_key(REQUEST)
    plugin.needed_instances(REQUEST)
    if isinstance(plugin, Filter):
        judge(plugin, [HOST], REQUEST, None)
        plugin.limits(HOST, REQUEST)
    else:
        plugin.weigh_all([HOST], REQUEST)
        plugin.scale(HOST)


def _missing(error: cfg.NoSuchOptError | cfg.NoSuchGroupError) -> str:
    """Return the missing option, or the missing group."""
    if isinstance(error, cfg.NoSuchGroupError):
        return f'[{error.group_name}]'
    group = 'DEFAULT'
    if error.group is not None:
        group = error.group.name
    return f'[{group}] {error.opt_name}'


def rehearse_all(plugins: Sequence[Filter | Weigher]) -> None:
    """Ask all plugins of other packages about the made-up host, in a child process: the
    processes that are forked later must not share connections of a plugin.

    :raises ConfigError: a plugin reads an option that is not declared.
    """
    foreign = list(filter(is_foreign, plugins))
    if not foreign:
        return
    try:
        refusal = in_child(lambda: _rehearse_each(foreign), PLUGIN_TIMEOUT_S)
    except ChildFailed as error:
        names = ', '.join(plugin.name for plugin in foreign)
        LOG.warning('%s about a made-up host and request: %s', names, error)
        return
    if refusal is not None:
        raise ConfigError(*refusal)


def _rehearse_each(plugins: Sequence[Filter | Weigher]) -> list[str] | None:
    """Log the failures of plugins; return the first error that ends the start."""
    for plugin in plugins:
        try:
            warning = rehearse(plugin)
        except ConfigError as error:
            return [error.option, error.value, error.why]
        if warning is not None:
            LOG.warning('%s', warning)
    return None
