# SPDX-License-Identifier: Apache-2.0
"""The same hosts and requests through nova's released classes and through ours."""
