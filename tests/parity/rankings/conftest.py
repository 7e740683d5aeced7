# SPDX-License-Identifier: Apache-2.0
"""The functional tests' servers, under the names by which their fixtures ask for each other."""

from tests.lab import fixtures

directory, nova, mariadb = fixtures.directory, fixtures.nova, fixtures.mariadb
rabbitmq, placement = fixtures.rabbitmq, fixtures.placement
cloud, client = fixtures.cloud, fixtures.client
