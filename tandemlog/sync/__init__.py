"""The synchronous clients: Producer, Consumer and Admin for programs without asyncio.

All of them share one event loop in a thread of its own (loop_thread.py). Admin and Consumer are
generated from the clients for asyncio. Each is loaded by itself, as `tandemlog.Producer` and so on:
who sends messages loads nothing that reads them.
"""
