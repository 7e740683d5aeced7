# SPDX-License-Identifier: Apache-2.0
"""The page in a browser, over a made-up cloud."""
