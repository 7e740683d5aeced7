# SPDX-License-Identifier: Apache-2.0
"""The decision where instances go. No I/O, no thread and no clock below this
package."""
