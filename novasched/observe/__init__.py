# SPDX-License-Identifier: Apache-2.0
"""Observation of decisions: records, metrics, traces, health and the page."""
