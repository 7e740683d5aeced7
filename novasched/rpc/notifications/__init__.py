# SPDX-License-Identifier: Apache-2.0
"""Notifications that instances are about to be placed, and that they are."""
