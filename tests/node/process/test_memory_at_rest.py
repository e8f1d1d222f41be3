"""Memory goes back when a node rests, and once each time; that of all its threads."""

import asyncio
import subprocess
import sys

from tandemlog_server.node.process.memory_at_rest import give_back_at_rest


async def test_memory_is_given_back_once_after_each_time_of_work() -> None:
    # one number a look: what the node has done until then
    numbers = [0, 0, 5, 9, 9, 9, 9, 10, 10, 10]
    looks, given_back_at = iter(range(len(numbers))), []
    last = 0

    def activity() -> int:
        nonlocal last
        last = next(looks)
        return numbers[last]

    task = asyncio.create_task(
        give_back_at_rest(activity, rest_s=0, give_back=lambda: given_back_at.append(last))
    )
    await asyncio.gather(task, return_exceptions=True)  # the looks run out
    assert given_back_at == [4, 8]


def test_the_collector_leaves_alone_what_a_started_node_has() -> None:
    program = """
import gc
from tandemlog_server.node.process.memory_at_rest import NEW_OBJECTS, collect_rarely
collect_rarely()
assert gc.get_freeze_count() > 1_000, gc.get_freeze_count()
assert gc.get_threshold()[0] == NEW_OBJECTS
seen = []
gc.callbacks.append(lambda phase, info: seen.append(info["generation"]))
view = memoryview(bytes(10_000))
slices = [view[at : at + 1] for at in range(10_000)]
assert not seen, "a pull's slices are no reason to look"
rings = []
for _ in range(2 * NEW_OBJECTS):
    rings.append([rings])
assert seen, "what stays is looked at"
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


MADE_BY_THREADS = """
import re, sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tandemlog_server.node.process.memory_at_rest import give_back_freed_memory, share_one_arena
from tandemlog.memory import keep_freed_memory

def resident_mib():
    status = Path("/proc/self/status").read_text()
    return int(re.search(r"RssAnon:\\s+(\\d+) kB", status)[1]) >> 10

def answer():
    return b"".join([b"x" * (1 << 20) for _ in range(8)])

keep_freed_memory()
if sys.argv[1] == "one arena":
    share_one_arena()
before = resident_mib()
readers = [ThreadPoolExecutor(1) for _ in range(4)]
answers = [reader.submit(answer) for reader in readers]
held = sum(len(each.result()) for each in answers) >> 20
del answers
give_back_freed_memory()
print(held, resident_mib() - before)
"""


def kept_mib(how: str) -> int:
    done = subprocess.run(
        [sys.executable, "-c", MADE_BY_THREADS, how], check=True, capture_output=True, text=True
    )
    made, kept = map(int, done.stdout.split())
    assert made == 32
    return kept


def test_what_threads_have_freed_goes_back() -> None:
    assert kept_mib("one arena") < 4
    assert kept_mib("arenas of threads") > 16, "glibc trims them by now: share_one_arena can go"
