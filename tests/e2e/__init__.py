# SPDX-License-Identifier: Apache-2.0
"""Scenarios in a small real cloud, driven through nova's own HTTP API.

The cloud has the released nova-api, nova-conductor, nova-compute with nova's fake
driver, Placement, Glance, MariaDB and RabbitMQ. The fake driver of three computes
reports PCI devices in addition. Keystone is missing: the services believe the headers
that Keystone's middleware would set. Neutron is missing too: a stub answers with empty
lists. The scenarios run with nova-scheduler first, then with novasched and nothing else
changed. Both runs expect nova's behaviour.

    pytest -v tests/e2e                         both, one after the other
    pytest -v tests/e2e -k novasched            novasched only
"""
