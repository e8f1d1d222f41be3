"""The synchronous clients: Producer, Consumer and Admin for programs without asyncio.

All of them share one event loop in a thread of its own (loop_thread.py).
"""

from ..produce.futures import SendFuture
from .admin import Admin
from .consumer import Consumer, Stream
from .producer import Producer

__all__ = ["Admin", "Consumer", "Producer", "SendFuture", "Stream"]
