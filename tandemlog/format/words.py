"""Numbers in the messages of every layer."""


def counted(count: int, noun: str, many: str = "") -> str:
    """`1 queue`, `2 queues`; `many` where an s does not make the plural."""
    return f"{count} {noun if count == 1 else many or f'{noun}s'}"
