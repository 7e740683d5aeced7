# SPDX-License-Identifier: Apache-2.0
"""Messages that services have sent, as bodies that name method, version and arguments."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from novasched.rpc.wire.base import DATA
from tests.lab.builders import a_uuid
from tests.lab.wire import MADE, RECORDED

OLD = Path(__file__).parents[1] / 'lab' / 'messages' / 'old.jsonl'
HOSTS = ('e2e-cmp1', 'e2e-cmp2', 'e2e-cmp3', 'e2e-cmp4')
ZONE, CELL = 'e2e-az', 'c20426e3-05e3-4b70-9282-0679c58899f1'
"""What the messages name."""


def a_call(arguments: Any, version: str = '4.5') -> dict[str, Any]:
    return {'method': 'select_destinations', 'version': version, 'args': arguments}


def full(**extra_specs: str) -> Any:
    """Arguments that say something of everything, and yet find a host."""
    arguments = json.loads(json.dumps(MADE['everything']).replace('1515', '10fb'))
    arguments['instance_uuids'] = [a_uuid('one'), a_uuid('two')]
    arguments |= {'return_objects': True, 'return_alternates': True}
    spec = arguments['spec_obj'][DATA]
    spec['availability_zone'] = ZONE
    spec['requested_destination'][DATA] |= {'host': None, 'node': None, 'cell': None}
    spec['scheduler_hints'] = {
        'query': ['["or", [">=", "$free_ram_mb", 1024], ["=", "$stats.x", "$service.host"]]'],
        'different_host': [a_uuid('nobody')], 'build_near_host_ip': ['192.0.2.9'], 'cidr': ['/24'],
    }  # fmt: skip
    spec['instance_group'][DATA] |= {'hosts': [], 'policy': 'soft-affinity'}
    spec['pci_requests'][DATA]['requests'][0][DATA] |= {'count': 1, 'numa_policy': 'preferred'}
    spec['numa_topology'][DATA]['cells'][0][DATA]['pagesize'] = None
    spec['flavor'][DATA]['extra_specs'] = {
        'hw:cpu_policy': 'mixed', 'hw:cpu_dedicated_mask': '^0-1', 'hw:cpu_thread_policy': 'prefer',
        'aggregate_instance_extra_specs:e2e_ssd': '<in> t', 'hw:maxphysaddr_bits': '40', 'capabilities:free_ram_mb': '>= 1',
        'capabilities:cpu_info:features': '<in> avx', 'trait2:CUSTOM_A': 'required', 'hw:pmem': 'a,b',
        'resources2:CUSTOM_B': '2', 'hw:tpm_version': '2.0', **extra_specs,
    }  # fmt: skip
    spec['image'][DATA]['properties'][DATA] |= {
        'img_hv_requested_version': '>=1', 'hw_maxphysaddr_bits': 40, 'hw_vif_model': 'virtio',
    }  # fmt: skip
    return arguments


def _messages() -> dict[str, Any]:
    sent = {case: body for case, body in RECORDED.items() if 'method' in body}
    made = {case: a_call(arguments) for case, arguments in {**MADE, 'full': full()}.items()}
    for row in map(json.loads, OLD.read_text().splitlines()):
        made[f'{row["from"]} {row["case"]}'] = a_call(row['arguments'], row['version'])
    found: dict[str, Any] = json.loads(json.dumps({**sent, **made}).replace(CELL, a_uuid('cell1')))
    return found


MESSAGES = _messages()
"""By what is asked or told."""
