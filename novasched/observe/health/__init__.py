# SPDX-License-Identifier: Apache-2.0
"""Health for probes, judged from the reports of the processes."""
