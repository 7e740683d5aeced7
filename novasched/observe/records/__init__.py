# SPDX-License-Identifier: Apache-2.0
"""Decision records: the reasons for the host of an instance, or for a refusal."""
