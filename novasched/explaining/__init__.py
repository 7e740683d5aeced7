# SPDX-License-Identifier: Apache-2.0
"""``novaschedctl explain``: why a server went where it went, or nowhere."""
