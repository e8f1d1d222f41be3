"""More worlds than the tests play, and one of them again: of real stores, or of elections.

PYTHONPATH=tests python -m sim 5000            seeds 0..4999, on all processors
PYTHONPATH=tests python -m sim 5000 7000       seeds 5000..6999
PYTHONPATH=tests python -m sim 123 --shortest  the shortest part of seed 123 that fails
PYTHONPATH=tests python -m sim --elections 5000  worlds that elect, a third of them in each mode
PYTHONPATH=tests python -m sim --served 5000     the same with real clients in them
PYTHONPATH=tests python -m sim --blackouts 5000  the power of all nodes fails, after any history
PYTHONPATH=tests python -m sim --delays 5000     messages that come later, over real stores
PYTHONPATH=tests python -m sim --services 5000   work queues and transactions, over real stores
PYTHONPATH=tests python -m sim --scrub 1000      disks that turn bits, and the scrub that mends
PYTHONPATH=tests python -m sim --archives 1000   archivers beside stores that fail over and are cut
"""

import logging
import os
import re
import sys
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor

from sim import archive_world, election_world, served_run, services_run
from sim.delay_world import DelayWorld
from sim.election_blackouts import blackouts_of
from sim.ha_nodes import CrashError, ViolationError
from sim.scrub_world import ScrubWorld
from sim.store_run import play, shortest
from tandemlog_server.ha.config import Replication

WORKERS = int(os.environ.get("TANDEMLOG_SIM_WORKERS", os.cpu_count() or 1))

SHOWN_EVERY = 500

Outcome = tuple[int, str, dict[str, int]]
"""The seed, what it broke, how often what happened."""


def outcome(seed: int) -> Outcome:
    try:
        return seed, "", play(seed).counters
    except ViolationError as broken:
        return seed, str(broken), {}
    except (Exception, CrashError) as fault:
        return seed, f"seed {seed}: {fault!r}", {}


def outcome_of_elections(seed: int) -> Outcome:
    logging.disable(logging.CRITICAL)
    try:
        mode = list(Replication)[seed % 3]
        return seed, "", election_world.play(seed, mode=mode).counters
    except (Exception, CrashError) as fault:
        return seed, f"seed {seed}: {fault}", {}


def outcome_of_clients(seed: int) -> Outcome:
    logging.disable(logging.CRITICAL)
    try:
        return seed, "", served_run.play(seed).counters
    except (Exception, CrashError) as fault:
        return seed, f"seed {seed}: {fault}", {}


def outcome_of_blackouts(seed: int) -> Outcome:
    logging.disable(logging.CRITICAL)
    try:
        return seed, "", blackouts_of(seed).counters
    except (Exception, CrashError) as fault:
        return seed, f"seed {seed}: {fault}", {}


def outcome_of_delays(seed: int) -> Outcome:
    try:
        return seed, "", play(seed, make=DelayWorld).counters
    except (Exception, CrashError) as fault:
        return seed, f"seed {seed}: {fault}", {}


def outcome_of_scrub(seed: int) -> Outcome:
    try:
        return seed, "", play(seed, make=ScrubWorld).counters
    except (Exception, CrashError) as fault:
        return seed, f"seed {seed}: {fault}", {}


def outcome_of_services(seed: int) -> Outcome:
    try:
        return seed, "", services_run.played(seed).counters
    except (Exception, CrashError) as fault:
        return seed, f"seed {seed}: {fault}", {}


def outcome_of_archives(seed: int) -> Outcome:
    try:
        return seed, "", archive_world.play(seed).counters
    except (Exception, CrashError) as fault:
        return seed, f"seed {seed}: {fault}", {}


def search(seeds: range, play_one: Callable[[int], Outcome] = outcome) -> int:
    """Play them all; how many failed."""
    began, found, counters = time.monotonic(), Counter[str](), Counter[str]()
    first: dict[str, str] = {}
    with ProcessPoolExecutor(
        int(os.environ.get("TANDEMLOG_SIM_WORKERS", os.cpu_count() or 1))
    ) as pool:
        played = pool.map(play_one, seeds, chunksize=5)
        for number, (_, text, counts) in enumerate(played, 1):
            counters.update(counts)
            if number % SHOWN_EVERY == 0:
                rate = number / (time.monotonic() - began)
                print(
                    f"{number} of {len(seeds)}, {rate:.1f}/s, {found.total()} violations",
                    flush=True,
                )
            if text:
                line = text.splitlines()[0]
                kind = re.sub(r"\d+", "#", line)[:100]
                found[kind] += 1
                first.setdefault(kind, text)
                print(line[:300], flush=True)
    for kind, text in first.items():
        print(f"\n{found[kind]} times, first:\n{text}")
    seconds = time.monotonic() - began
    print(
        f"\n{dict(counters)}\n{len(seeds)} seeds, {len(seeds) / seconds:.1f}/s, "
        f"{found.total()} violations"
    )
    return found.total()


OTHER_WORLDS = {
    "--elections": outcome_of_elections,
    "--served": outcome_of_clients,
    "--blackouts": outcome_of_blackouts,
    "--delays": outcome_of_delays,
    "--scrub": outcome_of_scrub,
    "--services": outcome_of_services,
    "--archives": outcome_of_archives,
}


def main(arguments: list[str]) -> int:
    numbers = [int(each) for each in arguments if each.isdigit()]
    if "--shortest" in arguments:
        steps, text = shortest(numbers[0])
        print(f"{steps} steps: {text}" if text else f"seed {numbers[0]} keeps every promise")
        return bool(text)
    for option, play_one in OTHER_WORLDS.items():
        if option in arguments:
            return bool(search(range(*numbers), play_one))
    return bool(search(range(*numbers)))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
