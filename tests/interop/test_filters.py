"""Filters made at random select what RocketMQ's own classes select of the same messages."""

import json
import random
import subprocess
from pathlib import Path

import pytest

from fakes.plain_filter import a_filter, selects, some_properties
from interop.jars import java
from tandemlog.format.filter.expression import FilterError
from tandemlog.format.filter.parser import parse

pytestmark = pytest.mark.interop

FILTERS, MESSAGES = 4000, 25


def test_as_rocketmq_selects(tmp_path: Path) -> None:
    rng = random.Random(92)
    orders = [
        (a_filter(rng), [some_properties(rng) for _ in range(MESSAGES)]) for _ in range(FILTERS)
    ]
    done = subprocess.run(
        java("Filter", home=tmp_path),
        input="\n".join(
            json.dumps({"filter": text, "messages": messages}) for text, messages in orders
        ),
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=120,
        check=True,
    )
    differ: list[tuple[object, ...]] = []
    compared = chosen = 0
    for (text, messages), line in zip(orders, done.stdout.splitlines(), strict=True):
        theirs = json.loads(line)
        try:
            condition = parse(text)
        except FilterError as error:
            if theirs is not None:
                differ.append((text, f"refused here: {error}"))
            continue
        if theirs is None:
            differ.append((text, "refused by RocketMQ"))
            continue
        ours = [selects(condition, each) for each in messages]
        compared += 1
        chosen += sum(ours)
        differ += [
            (text, each, mine, other)
            for each, mine, other in zip(messages, ours, theirs, strict=True)
            if mine != other
        ]
    print(f"{compared} filters compared, {chosen} messages selected")
    assert compared > FILTERS / 3
    assert not differ, "\n".join(map(str, differ[:40]))
