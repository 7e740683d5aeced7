# SPDX-License-Identifier: Apache-2.0
"""Metrics for Prometheus, if nova.conf enables them.

``catalogue.py`` names every metric. Workers write to files of a shared directory, which the
process that serves HTTP reads. A request pays next to nothing: ``collectors.py`` adds up
decisions afterwards, and samples the other values once a second.
"""
