"""Points in time as people write them: ISO 8601, milliseconds since 1970, or `-1h`.

    2026-05-01   2026-05-01T12:00+02:00   1777629600000   -90s   -15m   -1h30m   -2d   now

A date or time without a zone is local time. What begins with `-` and has units is so long ago.
"""

import re
from datetime import datetime

import typer

# Below this a number is taken for a queue offset where both are possible, above for milliseconds:
# 10^11 ms is March 1973, and no queue has 10^11 messages.
LEAST_MS = 100_000_000_000

# What the field of a request holds, and how long a number may be written.
MAX_MS = 2**63 - 1
MAX_LENGTH = 40

FORMS = "ISO 8601, milliseconds since 1970, or how long ago, such as -1h or -15m"
UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_AGO = re.compile(r"-(?:[0-9]{1,15}(?:ms|[smhdw]))+")
_PART = re.compile(r"([0-9]+)(ms|[smhdw])")


def parse_time_ms(text: str, now_ms: int, besides: str = "") -> int:
    """Milliseconds since the epoch. Raises typer.BadParameter that says what is accepted;
    `besides`: what the option takes in addition to times."""
    text = text.strip()
    if text == "now":
        return now_ms
    if _AGO.fullmatch(text):
        ago = sum(int(number) * UNITS_MS[unit] for number, unit in _PART.findall(text))
        if ago > now_ms:
            raise typer.BadParameter(f"a time must be after 1970: {text}")
        return now_ms - ago
    if text.removeprefix("-").isdecimal():
        # counted first: int() takes no thousands of digits
        if len(text) > MAX_LENGTH or int(text) > MAX_MS:
            raise typer.BadParameter(
                f"a time in milliseconds is at most {MAX_MS}: {text[:MAX_LENGTH]}"
            )
        value = int(text)
        if value < 0:
            raise typer.BadParameter(
                f"a time must be after 1970: {text}; so long ago has a unit, such as {text}s"
            )
        return value
    try:
        moment = datetime.fromisoformat(text)
        return round(moment.timestamp() * 1000)
    except (ValueError, OverflowError, OSError):
        raise typer.BadParameter(
            f"not a time: {text!r}; write {besides}{FORMS}, for example 2026-05-01T12:00:00+02:00"
        ) from None
