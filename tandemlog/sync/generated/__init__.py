"""Generated from the clients for asyncio by `make sync`. Do not edit."""
