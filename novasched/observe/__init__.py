# SPDX-License-Identifier: Apache-2.0
"""Observation of decisions: records, metrics, traces, and the pages that show them."""
