# SPDX-License-Identifier: Apache-2.0
"""Build with pbr, which reads setup.cfg and derives the version from git."""

import setuptools

setuptools.setup(pbr=True)
