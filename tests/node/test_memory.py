"""Memory goes back when a node rests, and once each time."""

import asyncio
import subprocess
import sys

from node.memory import give_back_at_rest


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
from node.memory import NEW_OBJECTS, collect_rarely
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
