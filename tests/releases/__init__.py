# SPDX-License-Identifier: Apache-2.0
"""The wire and the schemas of nova's releases, each with its own nova beside the
daemon."""
