"""The synchronous clients: Producer, Consumer and Admin for programs without asyncio.

All of them share one event loop in a thread of its own (loop_thread.py). Admin and Consumer are
generated from the clients for asyncio.
"""

from ..produce.futures import SendFuture
from .generated.admin import Admin
from .generated.consumer import Consumer
from .producer import Producer
from .sync_stream import Stream

__all__ = ["Admin", "Consumer", "Producer", "SendFuture", "Stream"]
