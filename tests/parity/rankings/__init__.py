# SPDX-License-Identifier: Apache-2.0
"""The real nova-scheduler and ours, both running, asked the same on the same
databases."""
