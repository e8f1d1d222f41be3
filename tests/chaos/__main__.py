"""Play faults on real clusters for some minutes; what came of it goes to build/chaos.json.

PYTHONPATH=.:tests python -m chaos 60     minutes; CHAOS_SEED=… repeats the order of faults
"""

import os
import random
import signal
import sys
import time
import traceback
from pathlib import Path

from chaos.campaign import Campaign
from helpers import needs
from helpers.running import ROOT

REPORT = ROOT / "build" / "chaos.json"


def main(minutes: float, report: Path = REPORT) -> int:
    """The exit code: 1 if a promise was broken or a cluster did not heal."""
    seed = int(os.environ.get("CHAOS_SEED", "0")) or random.SystemRandom().randrange(1, 1 << 31)
    print(f"seed {seed}, {minutes:g} minutes", flush=True)
    campaign = Campaign(seed)
    tally = campaign.tally
    began = time.monotonic()
    try:
        campaign.run(minutes * 60)
    except Exception as error:  # a cluster that did not heal, or a fault of the run itself
        tally.error = f"{type(error).__name__}: {error}"
        traceback.print_exc()
    finally:
        tally.write(report)
    for finding in tally.findings[:20]:
        print(f"{finding.kind}: {finding.text}")
    print(tally.table())
    seconds = time.monotonic() - began
    broken = len(tally.findings)
    print(f"{len(tally.played)} faults in {seconds:.0f} s, {broken} promises broken: {report}")
    return 1 if tally.findings or tally.error else 0


if __name__ == "__main__":
    missing = needs.missing("netns")
    if missing:
        sys.exit(f"chaos: {missing}")
    if needs.missing("fuse"):
        print(f"no fault of a disk is played: {needs.missing('fuse')}")
    # what is terminated cleans up as well
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    sys.exit(main(float(sys.argv[1]) if len(sys.argv) > 1 else 10.0))
