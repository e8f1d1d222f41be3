"""Points in time as people write them: milliseconds since the epoch, or ISO 8601.

A date or time without a zone is local time; `now` is now.
"""

from datetime import datetime

import typer

# Below this a number is taken for a queue offset where both are possible, above for milliseconds:
# 10^11 ms is March 1973, and no queue has 10^11 messages.
LEAST_MS = 100_000_000_000

# What the field of a request holds, and how long a number may be written.
MAX_MS = 2**63 - 1
MAX_LENGTH = 40


def parse_time_ms(text: str, now_ms: int) -> int:
    """Milliseconds since the epoch. Raises typer.BadParameter that says what is accepted."""
    text = text.strip()
    if text == "now":
        return now_ms
    if text.removeprefix("-").isdecimal():
        # counted first: int() takes no thousands of digits
        if len(text) > MAX_LENGTH or int(text) > MAX_MS:
            raise typer.BadParameter(
                f"a time in milliseconds is at most {MAX_MS}: {text[:MAX_LENGTH]}"
            )
        value = int(text)
        if value < 0:
            raise typer.BadParameter(f"a time must be after 1970: {text}")
        return value
    try:
        moment = datetime.fromisoformat(text)
        return round(moment.timestamp() * 1000)
    except (ValueError, OverflowError, OSError):
        raise typer.BadParameter(
            f"not a time: {text!r}; write milliseconds since 1970 or ISO 8601, "
            "for example 2026-05-01T12:00:00+02:00"
        ) from None
