# SPDX-License-Identifier: Apache-2.0
"""The HTTP process, for probes, Prometheus and people. It only reads."""
