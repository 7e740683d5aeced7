# SPDX-License-Identifier: Apache-2.0
"""Notifications before and after the instances of a request are placed."""
