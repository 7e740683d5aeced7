# SPDX-License-Identifier: Apache-2.0
"""Scenarios in a small real cloud, driven through nova's own HTTP API.

Real are nova-api, nova-conductor, nova-compute with nova's fake driver, Placement,
Glance, MariaDB and RabbitMQ, all as released. Not there are Keystone, whose headers the
services believe, and Neutron, in whose place empty lists are answered. The scenarios
run with nova-scheduler first, then with novasched in its place and nothing else
changed; what they expect is nova's behaviour with either.

    pytest -v tests/e2e                         both, one after the other
    pytest -v tests/e2e -k novasched            one of them
"""
