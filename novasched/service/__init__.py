# SPDX-License-Identifier: Apache-2.0
"""The daemon: composition root, processes, and Guru Meditation Report."""
