"""What a request of RocketMQ's clients costs a node, and where.

A node alone gets raw frames (java/RawLoad), many in flight: `send` (one message each), `batch`
(32), or `pull` (32 of a filled queue). Printed are the node's processor time for a request, of each
of its threads too, and the functions that py-spy found on the processor: by themselves, and with
what they call. py-spy is fetched into build/seeds; it looks from outside, after the costs are
measured.

    PYTHONPATH=.:tests python -m benchmarks.seeds.profile send
"""

import argparse
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.harness.scratch import scratch_folder
from benchmarks.peers.kafka import fetch_package
from benchmarks.seeds import servers
from benchmarks.seeds.programs import BUILD, JavaProgram
from benchmarks.seeds.servers import Server

SAMPLER = "py-spy==0.4.1"
SAMPLES_PER_S = 250
QUEUES = 8
FILLED = 512
"""Messages of each queue that is read."""
ROWS = 30
WAITING = ("_worker (concurrent/futures/thread.py:",)
"""A thread that py-spy takes for a running one while it waits for work."""
WARM_UP_S = 3


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.seeds.profile", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("work", choices=("send", "batch", "pull"))
    parser.add_argument("--topics", type=int, default=64)
    parser.add_argument("--seconds", type=int, default=5)
    wishes = parser.parse_args()
    with (
        scratch_folder("seeds-profile") as folder,
        servers.node(folder / "node") as node,
        JavaProgram("RawLoad", folder / "raw") as raw,
    ):
        servers.make_topics(node, "bench", wishes.topics, QUEUES)
        words: list[object] = [node.port, "bench", wishes.topics, QUEUES]
        if wishes.work == "pull":
            raw.ask("fill", *words, FILLED)
            words.append(FILLED)
        raw.ask(wishes.work, *words, WARM_UP_S)
        # once without the sampler, which takes a part of one of the processors
        costs(node, raw, wishes.work, [*words, wishes.seconds])
        stacks = sampled(node, raw, wishes.work, [*words, wishes.seconds], wishes.seconds)
    show(stacks)


def costs(node: Server, raw: JavaProgram, work: str, words: Iterable[object]) -> None:
    """Prints the rate, and the processor time of a request by thread."""
    before, used = cpu_seconds_by_thread(node.process), node.cpu_seconds
    answer = raw.ask(work, *words)
    after, used = cpu_seconds_by_thread(node.process), node.cpu_seconds - used
    requests = answer["requests"]
    sys.stdout.write(
        f"{work}: {requests / answer['seconds']:,.0f} requests/s, "
        f"{answer['messages'] / answer['seconds']:,.0f} messages/s, "
        f"p50 {answer['p50_us'] / 1000:.1f} ms, p99 {answer['p99_us'] / 1000:.1f} ms\n"
        f"processor time of the node: {1e6 * used / requests:.1f} us/request\n"
    )
    spent = {thread: after[thread] - before.get(thread, 0.0) for thread in after}
    for thread, seconds in sorted(spent.items(), key=lambda each: -each[1]):
        if share := 1e6 * seconds / requests:
            sys.stdout.write(f"    {share:6.1f} us  {thread}\n")


def cpu_seconds_by_thread(process: int) -> dict[str, float]:
    """Processor time so far: name and number of each thread -> seconds."""
    ticks = os.sysconf("SC_CLK_TCK")
    found = {}
    for stat in Path(f"/proc/{process}/task").glob("*/stat"):
        head, _, rest = stat.read_text().rpartition(")")
        number, _, name = head.partition(" (")
        found[f"{name} {number}"] = sum(map(int, rest.split()[11:13])) / ticks
    return found


def sampled(
    node: Server, raw: JavaProgram, work: str, words: Iterable[object], seconds: int
) -> Mapping[str, int]:
    """Stack, from the outermost function to the innermost -> how often it was seen."""
    python = fetch_package(SAMPLER, BUILD)
    output = BUILD / f"{work}.stacks"
    options = ("--format", "raw", "--rate", str(SAMPLES_PER_S), "--duration", str(seconds))
    with subprocess.Popen(
        [str(python.with_name("py-spy")), "record", *options, "--output", str(output),
         "--pid", str(node.process)],
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    ) as sampler:  # fmt: skip
        raw.ask(work, *words)
        _, said = sampler.communicate(timeout=120)
    if sampler.returncode:
        raise RuntimeError(f"py-spy: {said[-1000:]}")
    return read_stacks(output.read_text().splitlines())


def read_stacks(lines: Iterable[str]) -> dict[str, int]:
    """The lines `outermost (file:line);...;innermost (file:line) COUNT`, by stack, without those
    of threads that wait for work."""
    rows = (line.rpartition(" ") for line in lines)
    return {
        stack: int(count)
        for stack, _, count in rows
        if not stack.rpartition(";")[2].startswith(WAITING)
    }


def shares(stacks: Mapping[str, int]) -> dict[str, tuple[float, float]]:
    """Function and file -> the part of all samples in which it was the innermost one, and in which
    it was anywhere."""
    alone: Counter[str] = Counter()
    within: Counter[str] = Counter()
    for stack, count in stacks.items():
        functions = [_without_line(frame) for frame in stack.split(";")]
        alone[functions[-1]] += count
        for function in set(functions):
            within[function] += count
    total = sum(stacks.values()) or 1
    return {name: (alone[name] / total, within[name] / total) for name in within}


def _without_line(frame: str) -> str:
    head, colon, _ = frame.rpartition(":")
    return f"{head})" if colon else frame


def show(stacks: Mapping[str, int]) -> None:
    found = shares(stacks)
    table = Table(title=f"{sum(stacks.values())} samples of running threads", title_justify="left")
    for column in ("alone", "with calls"):
        table.add_column(column, justify="right")
    table.add_column("function")
    names = sorted(found, key=lambda name: -found[name][0])[:ROWS]
    names += [name for name in sorted(found, key=lambda name: -found[name][1])[: 2 * ROWS]
              if name not in names]  # fmt: skip
    for name in names:
        alone, within = found[name]
        table.add_row(f"{100 * alone:.1f} %", f"{100 * within:.1f} %", name)
    Console(width=140).print(table)


if __name__ == "__main__":
    main()
