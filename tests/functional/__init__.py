# SPDX-License-Identifier: Apache-2.0
"""The real daemon with real RabbitMQ, MariaDB, Placement and nova's own client."""
