# SPDX-License-Identifier: Apache-2.0
"""Notifications: that servers are about to be placed, and that they are.

``spec.py`` says what a request has become, ``legacy.py`` and ``versioned.py`` put that into
nova's two formats, ``sender.py`` sends it. The formats are those of nova 34.0.0.
"""
