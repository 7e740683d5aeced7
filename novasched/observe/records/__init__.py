# SPDX-License-Identifier: Apache-2.0
"""Decision records: why an instance went where it went, or nowhere."""
