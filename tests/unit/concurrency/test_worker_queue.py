# SPDX-License-Identifier: Apache-2.0
import threading
import weakref

from novasched.concurrency.worker_queue import WorkerQueue


class Item:
    """A large item."""


def test_a_waiting_worker_does_not_keep_the_last_item():
    """The thread that waits for the next item does not keep the last item."""
    gone = threading.Event()
    items = [Item()]
    waiting = WorkerQueue(lambda item: None, 'test', repr, 1)
    weakref.finalize(items[0], gone.set)
    assert waiting.put(items.pop())
    assert gone.wait(10)
    waiting.close()
