# SPDX-License-Identifier: Apache-2.0
"""Configuration: nova's options, settings made of them, redaction of secrets, TLS
files.

Importing the package imports none of it: the pure code needs ``settings`` alone.
"""
