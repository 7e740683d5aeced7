# SPDX-License-Identifier: Apache-2.0
"""Observation of decisions: records, explain, metrics, traces, and the pages that show them."""
