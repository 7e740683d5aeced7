# SPDX-License-Identifier: Apache-2.0
"""The messages and the schemas of nova's releases: the daemon beside the nova of every
release."""
