"""RocketMQ's own clients see of a node what they see of RocketMQ's own broker.

Each scenario of java/Scenarios.java is played by clients 5.5.0 and 4.9.7 against a broker 5.5.0
with its name server, and against a node; the two are compared field by field: statuses, offsets,
properties, order, how often each message was delivered, and the codes of refusals.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from interop.meant_differences import allowed
from interop.nodes_for_clients import a_broker, a_node
from interop.rocketmq import BROKER_NAME
from interop.scenarios import VERSIONS, Seen, differences, is_allowed, play, scenarios

pytestmark = pytest.mark.interop

ALLOWED = allowed()
MOST_LATE = 3

Both = tuple[dict[str, Seen], dict[str, Seen]]


class Scenarios:
    """What was seen of the broker and of the node, each by scenario, for each version."""

    def __init__(self, folder: Path, broker: str, node: str) -> None:
        self._folder = folder
        self._servers = {"broker": broker, "node": node}
        self._seen: dict[str, Both] = {}

    def seen(self, version: str, scenario: str, run: int) -> tuple[Seen, Seen]:
        """`run`: 1, or 2 when the test is run again: then its scenario is played again."""
        if version not in self._seen:
            self._seen[version] = self._all(version)
        if run > 1:
            self._play_again(version, scenario, turn=run + 1)
        theirs, ours = self._seen[version]
        return theirs[scenario], ours[scenario]

    def _all(self, version: str) -> Both:
        self._seen[version] = theirs, ours = self._play(version)
        # What the broker itself does not do in time, on a machine that is busy with all
        # scenarios at once, says nothing of a node: these are played again, few at a time.
        late = [name for name, seen in theirs.items() if seen.problem is not None]
        if 0 < len(late) <= MOST_LATE:
            self._play_again(version, *late, turn=2)
        return theirs, ours

    def _play_again(self, version: str, *names: str, turn: int) -> None:
        for before, now in zip(
            self._seen[version], self._play(version, *names, turn=turn), strict=True
        ):
            before |= now

    def _play(self, version: str, *names: str, turn: int = 1) -> Both:
        def on(server: str) -> dict[str, Seen]:
            home = self._folder / f"{server}-{version}-{'-'.join(names)}-{turn}"
            return play(version, self._servers[server], BROKER_NAME, home, *names, turn=turn)

        with ThreadPoolExecutor() as threads:
            theirs, ours = threads.map(on, self._servers)
        return theirs, ours


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scenarios]:
    folder = tmp_path_factory.mktemp("scenarios")
    with a_broker(folder / "broker") as broker, a_node(folder / "node") as node:
        yield Scenarios(folder, broker, node.address)


@pytest.mark.parametrize(
    ("version", "scenario"),
    [(version, scenario) for version in VERSIONS for scenario in scenarios(version)],
)
def test_a_node_is_seen_as_a_broker_is(
    request: pytest.FixtureRequest, played: Scenarios, version: str, scenario: str
) -> None:
    run = getattr(request.node, "execution_count", 1)  # of pytest-rerunfailures
    theirs, ours = played.seen(version, scenario, run)
    assert theirs.problem is None, f"at the broker: {theirs.problem}"
    assert ours.problem is None, f"at the node: {ours.problem}\nafter {ours.seen}"
    found = [
        each
        for each in differences(theirs.seen, ours.seen)
        if not is_allowed(scenario, each, ALLOWED)
    ]
    assert not found, "\n".join(map(str, found))
