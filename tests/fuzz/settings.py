"""How long and from which seed: FUZZ_MINUTES (0.5, half a minute for all of it), FUZZ_SEED.

Without either, as in `make test`, the seed is always the same: `make fuzz` is what looks for new
things.
"""

import os
import random

MINUTES = float(os.environ.get("FUZZ_MINUTES", "0.5"))
SEED = int(os.environ.get("FUZZ_SEED", "0")) or (
    random.SystemRandom().randrange(1, 1 << 31) if "FUZZ_MINUTES" in os.environ else 1
)
# How the time is shared out.
SHARES = {
    "rpc": 0.55, "link": 0.05, "frames": 0.12, "files": 0.2, "http": 0.08, "remoting": 0.2,
    "messaging": 0.2,
}  # fmt: skip


def seconds(part: str) -> float:
    return MINUTES * 60 * SHARES[part]
