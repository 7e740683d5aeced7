# SPDX-License-Identifier: Apache-2.0
"""The functional tests' servers, under the names by which their fixtures ask for each other."""

from tests.functional import conftest as functional

directory, nova, mariadb = functional.directory, functional.nova, functional.mariadb
rabbitmq, placement = functional.rabbitmq, functional.placement
cloud, client = functional.cloud, functional.client
