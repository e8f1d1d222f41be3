"""Memory goes back when a node rests, and once each time."""

import asyncio

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
