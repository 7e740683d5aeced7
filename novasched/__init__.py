# SPDX-License-Identifier: Apache-2.0
"""A drop-in replacement for nova-scheduler."""
