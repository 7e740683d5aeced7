# SPDX-License-Identifier: Apache-2.0
"""The daemon: building it, its processes, and its report to operators."""
