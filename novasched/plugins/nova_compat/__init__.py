# SPDX-License-Identifier: Apache-2.0
"""Filters and weighers that were written for nova, run unchanged.

``adapters`` makes ours of them, ``views`` is what they see, and ``import_stubs`` is the
little of nova that they import, for where nova itself is not installed.
"""
