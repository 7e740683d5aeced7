# SPDX-License-Identifier: Apache-2.0
"""How many of a flavor's vCPUs are pinned: Placement counts them as PCPU.

The extra specs are checked by nova-api when a flavor or server is made, so a value
that is not understood here means no policy rather than an error.
"""

from __future__ import annotations

from dataclasses import dataclass

from novasched.model.request import Flavor, Image

DEDICATED, MIXED, SHARED = 'dedicated', 'mixed', 'shared'


@dataclass(frozen=True, slots=True)
class Pinning:
    """How a flavor's CPUs divide: ``pcpus`` pinned ones, ``vcpus`` that float."""

    policy: str
    pcpus: int
    vcpus: int


def pinning(flavor: Flavor, image: Image | None) -> Pinning | None:
    """The pinned CPUs of ``hw:cpu_policy`` or ``hw_cpu_policy``; None without any.

    ``hw:emulator_threads_policy=isolate`` takes one more of them.
    """
    policy = _policy(flavor, image)
    if policy == DEDICATED:
        pinned = flavor.vcpus
    elif policy == MIXED:
        pinned = len(_dedicated_cpus(flavor, image))
    else:
        return None
    emulator = flavor.extra_specs.get('hw:emulator_threads_policy') == 'isolate'
    return Pinning(policy, pinned + emulator, flavor.vcpus - pinned)


def smt_trait(flavor: Flavor, image: Image | None) -> str | None:
    """'required' or 'forbidden' where the thread policy needs SMT on or off."""
    policy = flavor.extra_specs.get('hw:cpu_thread_policy')
    if policy in (None, 'prefer'):
        policy = policy or _property(image, 'hw_cpu_thread_policy')
    return {'isolate': 'forbidden', 'require': 'required'}.get(policy or '')


def _policy(flavor: Flavor, image: Image | None) -> str | None:
    """The flavor's policy comes first; an image may only add where it has none."""
    wanted = flavor.extra_specs.get('hw:cpu_policy')
    if wanted in (DEDICATED, MIXED, SHARED):
        return wanted
    return _property(image, 'hw_cpu_policy')


def _dedicated_cpus(flavor: Flavor, image: Image | None) -> set[int]:
    """The guest CPUs of a mixed flavor that are pinned: its mask, or the realtime one."""
    mask = flavor.extra_specs.get('hw:cpu_dedicated_mask')
    if not mask and flavor.extra_specs.get('hw:cpu_realtime', '').lower() in _TRUE:
        mask = _property(image, 'hw_cpu_realtime_mask') or flavor.extra_specs.get(
            'hw:cpu_realtime_mask', f'0-{flavor.vcpus - 1}'
        )
    if not mask:
        return set()
    if mask.strip().startswith('^'):
        mask = f'0-{flavor.vcpus - 1},{mask}'
    return cpu_set(mask)


def cpu_set(text: str) -> set[int]:
    """The CPUs of a list such as ``'0-3,^2,8'``.

    :raises ValueError: it is no such list.
    """
    taken: set[int] = set()
    dropped: set[int] = set()
    for part in text.split(','):
        rule = part.strip()
        first, _, last = rule.removeprefix('^').partition('-')
        span = range(int(first), int(last or first) + 1)
        (dropped if rule.startswith('^') else taken).update(span)
    return taken - dropped


_TRUE = ('1', 't', 'true', 'on', 'y', 'yes')


def _property(image: Image | None, name: str) -> str | None:
    value = image.properties.get(name) if image else None
    return str(value) if value else None
