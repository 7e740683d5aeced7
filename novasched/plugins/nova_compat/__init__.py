# SPDX-License-Identifier: Apache-2.0
"""Run filters and weighers that were written for nova.

``adapters`` wraps a plugin of nova into a filter or weigher of novasched. ``views`` and
``host_state`` show requests and hosts with the attributes of nova's objects.
``import_stubs`` has the modules of nova that plugins import, for an environment without
nova.
"""
