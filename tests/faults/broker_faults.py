# SPDX-License-Identifier: Apache-2.0
"""What happens to RabbitMQ."""

from __future__ import annotations

from collections.abc import Iterator

from .fault import fault
from .site import Site

MEMORY = '512MiB'


@fault('RabbitMQ stopped', forgets=True, varied=True)
def stopped(site: Site) -> Iterator[None]:
    """An upgrade of the broker."""
    site.rabbitmq.stop()
    yield
    site.rabbitmq.start()


@fault('RabbitMQ killed', forgets=True, quick=False)
def killed(site: Site) -> Iterator[None]:
    """Out of memory, for instance."""
    site.rabbitmq.kill()
    yield
    site.rabbitmq.start()


@fault('RabbitMQ frozen', quick=False)
def frozen(site: Site) -> Iterator[None]:
    """A virtual machine that is moved, or a partition that heals."""
    site.rabbitmq.freeze()
    yield
    site.rabbitmq.thaw()


@fault('RabbitMQ closes its connections', varied=True)
def closed(site: Site) -> Iterator[None]:
    """A load balancer that restarts."""
    site.rabbitmq.control('close_all_connections', 'a test')
    yield


@fault('RabbitMQ out of memory', quick=False)
def out_of_memory(site: Site) -> Iterator[None]:
    """It takes no messages from anybody who sends."""
    site.rabbitmq.control('set_vm_memory_high_watermark', '0')
    yield
    site.rabbitmq.control('set_vm_memory_high_watermark', 'absolute', MEMORY)
