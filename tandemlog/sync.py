"""The synchronous face in one place: Producer, Consumer and Admin for programs without asyncio.

All of them share one event loop in a thread of its own (loop_thread.py).
"""

from .futures import SendFuture
from .sync_admin import Admin
from .sync_consumer import Consumer, Stream
from .sync_producer import Producer

__all__ = ["Admin", "Consumer", "Producer", "SendFuture", "Stream"]
