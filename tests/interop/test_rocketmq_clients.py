"""RocketMQ's own clients see of a node what they see of RocketMQ's own broker.

Each scenario of java/Scenarios.java is played by clients 5.5.0 and 4.9.7 against a broker 5.5.0
with its name server, and against a node; the two are compared field by field: statuses, offsets,
properties, order, how often each message was delivered, and the codes of refusals.
"""

from concurrent.futures import ThreadPoolExecutor

import pytest

from interop.nodes_for_clients import a_broker, a_node
from interop.rocketmq import BROKER_NAME
from interop.scenarios import Allowed, Seen, differences, is_allowed, play, scenarios

pytestmark = pytest.mark.interop

VERSIONS = ("5.5.0", "4.9.7")
OF_OURS = "our name for what makes a record one of a delay, a transaction or a dead letter"
PLACE = (
    "a delivered record has the place of the one that waited in the field that transactions use: "
    "so each node knows from the log what was delivered"
)
ASKED = "a half is not stored again each time that its producer is asked"
ALLOWED = [
    Allowed("refused", "/topic of the system", "the template of new topics takes no messages"),
    Allowed(
        "topics",
        "/send to what is for reading",
        "a broker takes what is sent to a topic without the permission to write",
    ),
    Allowed("pull", "/no SQL", "a node refuses a filter that cannot be parsed"),
    Allowed(
        "groups",
        "/members of none",
        "a node has the topic for retries of a group as soon as anybody asks for it: so the "
        "first retry comes at once, and the question for members gets to the broker",
    ),
    Allowed("groups", "/deleted", "a broker still lists a group after its deletion"),
    Allowed("*", "*/properties/DELAY", "a level of 0 is no delay, and is not stored"),
    Allowed("*", "*/prepared", PLACE),
    Allowed("*", "*/properties/__TL_*", OF_OURS),
    Allowed("dead", "*/properties/TANDEMLOG_*", OF_OURS),
    Allowed("dead", "*/properties/DLQ_ORIGIN_*", "as dead letters of our own groups have it"),
    Allowed("dead", "*/properties/REAL_*", "a dead letter does not pass through a delay"),
    Allowed("timed", "*/properties/TIMER_*QUEUE_MS", "there is no wheel that a timer enters"),
    Allowed("transactions", "*/properties/TRANSACTION_CHECK_TIMES", ASKED),
    Allowed("transactions", "*/properties/TRAN_PREPARED_QUEUE_OFFSET", ASKED),
    Allowed("transactions", "*/properties/WAIT", ASKED),
]

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
