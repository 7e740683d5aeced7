# SPDX-License-Identifier: Apache-2.0
"""Commands of ``novaschedctl`` beside ``explain``: check, shadow, simulate and sandbox."""

USAGE_ERROR = 2
"""Exit status of a command with wrong arguments."""
