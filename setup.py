# SPDX-License-Identifier: Apache-2.0
"""Hands over to pbr, which reads setup.cfg and takes the version from git."""

import setuptools

setuptools.setup(pbr=True)
