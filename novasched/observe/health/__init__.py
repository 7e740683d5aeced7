# SPDX-License-Identifier: Apache-2.0
"""Health for probes: what the processes report of themselves, judged and served
locally."""
