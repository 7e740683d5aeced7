# SPDX-License-Identifier: Apache-2.0
"""Configuration: options of nova.conf, settings, redaction of secrets, TLS files.

The package imports none of its modules: the pure code needs ``settings`` alone.
"""
