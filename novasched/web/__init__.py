# SPDX-License-Identifier: Apache-2.0
"""What is served by HTTP, for eyes and for Prometheus: it reads, and changes nothing.

A process of its own serves it, so that whoever asks costs no thread that schedules.
``routing.py`` has the rules, ``server.py`` the process and ``surface.py`` all paths.
"""
