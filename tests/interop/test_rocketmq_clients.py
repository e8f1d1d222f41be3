"""RocketMQ's own clients see of a node what they see of RocketMQ's own broker.

Each scenario of java/Scenarios.java is played by clients 5.5.0 and 4.9.7 against a broker 5.5.0
with its name server, and against a node; the two are compared field by field: statuses, offsets,
properties, order, how often each message was delivered, and the codes of refusals.
"""

from concurrent.futures import ThreadPoolExecutor

import pytest

from interop.meant_differences import allowed
from interop.nodes_for_clients import a_broker, a_node
from interop.rocketmq import BROKER_NAME
from interop.scenarios import VERSIONS, Seen, differences, is_allowed, play, scenarios

pytestmark = pytest.mark.interop

ALLOWED = allowed()

Played = dict[str, tuple[dict[str, Seen], dict[str, Seen]]]


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Played:
    folder = tmp_path_factory.mktemp("scenarios")
    with a_broker(folder / "broker") as broker, a_node(folder / "node") as node:
        found: Played = {}
        for version in VERSIONS:
            with ThreadPoolExecutor() as threads:
                both = threads.map(
                    lambda where, version=version: play(
                        version, where[1], BROKER_NAME, folder / f"{where[0]}-{version}"
                    ),
                    [("broker", broker), ("node", node.address)],
                )
                theirs, ours = both
            found[version] = theirs, ours
    return found


@pytest.mark.parametrize(
    ("version", "scenario"),
    [(version, scenario) for version in VERSIONS for scenario in scenarios(version)],
)
def test_a_node_is_seen_as_a_broker_is(played: Played, version: str, scenario: str) -> None:
    theirs, ours = (each[scenario] for each in played[version])
    assert theirs.problem is None, f"at the broker: {theirs.problem}"
    assert ours.problem is None, f"at the node: {ours.problem}\nafter {ours.seen}"
    found = [
        each
        for each in differences(theirs.seen, ours.seen)
        if not is_allowed(scenario, each, ALLOWED)
    ]
    assert not found, "\n".join(map(str, found))
