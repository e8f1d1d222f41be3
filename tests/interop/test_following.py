"""A node follows a running broker: through kills, rolls of log files, a lost tail, and a move over.

Each test has a load that does not stop for what happens, and asks in the end for every message that
the broker acknowledged.
"""

import itertools
import json
import subprocess
import time
from collections import Counter
from pathlib import Path

import pytest

import tandemlog
from helpers import forked
from helpers.running import Running, wait_until
from interop.jars import VERSION
from interop.live import QUEUES, SIZES, TOPIC, check_alone, check_same, side_by_side
from tandemlog import Message
from tandemlog.errors import ChangeRefusedError
from tandemlog.format.files.names import offset_file_name
from tandemlog_server.rocketmq.follow.session import HEARTBEAT_S

pytestmark = [pytest.mark.interop, pytest.mark.lane("live")]

VERSIONS = ["5.5.0", "4.9.7"]


def takeover(endpoint: str, *options: str) -> subprocess.CompletedProcess[str]:
    return forked.run("takeover", "--endpoint", endpoint, "--yes", *options, timeout_s=180)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_follower_has_all_through_kills_of_either_side(tmp_path: Path, version: str) -> None:
    with side_by_side(tmp_path, version) as pair:
        node = pair.follow()
        load = pair.load(rate=1_500, body_bytes=600)
        load.wait_for(2_000)
        node.kill()
        load.wait_for(1_500)
        node.start()
        load.wait_for(1_500)
        pair.broker.kill()
        pair.broker.restart()
        pair.broker.wait_until_serving()
        load.wait_for(1_500)
        summary = load.stop()
        pair.equal()
        _, end = pair.broker_span()
        assert end > 3 * SIZES.commit_log_file_size
        assert summary.ok > 6_000
        pair.served(load.acknowledged())
        with tandemlog.Admin(node.endpoint) as admin:
            assert TOPIC in [each.name for each in admin.topics()]
        assert node.stop() == 0
        pair.broker.stop()
        check_alone(node.store)
        check_same(node.store, pair.broker.store)


def test_what_a_broker_lost_in_a_crash_goes_here_too(tmp_path: Path) -> None:
    """A crash of the broker's machine takes the end of its log, and producers fill the gap."""
    with side_by_side(tmp_path, VERSION) as pair:
        node = pair.follow()
        with pair.load("before", messages=3_000, body_bytes=500) as load:
            load.wait_for_end()
            end = pair.caught_up()
            kept = load.acknowledged()
        pair.broker.kill()
        cut = lose_tail(pair.broker.store, end, 40_000)
        pair.broker.restart()
        pair.broker.wait_until_serving()
        wait_until("the node to cut its log", lambda: "cutting" in node.tail(100_000), 60)
        with pair.load("after", messages=3_000, body_bytes=500) as load:
            load.wait_for_end()
            kept |= load.acknowledged()
        pair.equal()
        (copy,) = (node.store / "tandemlog").glob("cut-*")
        assert copy.stat().st_size == end - int(copy.name.split("-")[1])
        assert int(copy.name.split("-")[1]) <= cut
        assert str(copy) in node.tail(100_000)
        pair.served(pair.client.records(TOPIC, QUEUES))
        lost = kept.keys() - pair.client.records(TOPIC, QUEUES).keys()
        assert lost  # they were only here, and are in the copy
        body = copy.read_bytes()
        assert all(key.encode() in body for key in itertools.islice(lost, 20))


@pytest.mark.parametrize("version", VERSIONS)
def test_a_broker_without_messages_keeps_the_connection(tmp_path: Path, version: str) -> None:
    """One of 4.9 closes it on an acknowledgement above the end of its log."""
    with side_by_side(tmp_path, version) as pair:
        node = pair.follow()
        time.sleep(2.5 * HEARTBEAT_S)
        assert "the broker closed the connection" not in node.tail(100_000)
        with pair.load("first", messages=100) as load:
            assert load.wait_for_end().statuses == {"SEND_OK": 100}
            pair.equal()
            pair.served(load.acknowledged())


def lose_tail(store: Path, end: int, size: int) -> int:
    """The last bytes of a broker's log were never on its disk; where they began."""
    file_size = SIZES.commit_log_file_size
    start = max(end - size, end - end % file_size)
    with (store / "commitlog" / offset_file_name(end - end % file_size)).open("r+b") as file:
        file.seek(start % file_size)
        file.write(bytes(end - start))
    # what names positions behind that was not on the disk either
    (store / "checkpoint").unlink(missing_ok=True)
    return start


@pytest.mark.parametrize("version", VERSIONS)
def test_a_sync_master_counts_on_this_node_alone(tmp_path: Path, version: str) -> None:
    # a broker that has just started on a busy machine may take seconds for its first messages
    settings = {"brokerRole": "SYNC_MASTER", "inSyncReplicas": 2, "syncFlushTimeout": 20_000}
    with side_by_side(tmp_path, version, **settings) as pair:
        node = pair.follow()
        pair.caught_up()
        with pair.load("with", messages=400) as load:
            assert load.wait_for_end().statuses == {"SEND_OK": 400}
            promised = load.acknowledged()
        pair.client.set_broker_config("syncFlushTimeout", 2_000)
        node.kill()
        with pair.load("without", messages=4) as load:
            summary = load.wait_for_end()
            assert summary.ok == 0
            assert summary.statuses.keys() <= {"FLUSH_SLAVE_TIMEOUT", "SLAVE_NOT_AVAILABLE"}
        node.start()
        pair.following()
        pair.caught_up()
        pair.client.set_broker_config("syncFlushTimeout", 20_000)
        with pair.load("again", messages=100) as load:
            assert load.wait_for_end().statuses == {"SEND_OK": 100}
            promised |= load.acknowledged()
        pair.equal()
        pair.served(promised)


def test_moving_over_under_load_loses_nothing_and_repeats_nothing(tmp_path: Path) -> None:
    with side_by_side(tmp_path, VERSION) as pair:
        node = pair.follow()
        load = pair.load(rate=800, timeout_ms=30_000)  # none may fail
        consumer = pair.consumer("readers")
        load.wait_for(3_000)
        # so long that a broker or a node that stands still for a while answers in the end
        refused = takeover(node.endpoint, "--timeout", "10")
        assert refused.returncode == 5, refused.stderr
        assert "still takes writes" in refused.stderr
        with pytest.raises(ChangeRefusedError), tandemlog.Producer(node.endpoint) as producer:
            producer.send(Message(TOPIC, b"x")).result(60)

        # as docs/rocketmq-live.md says: producers stop, consumers read to the end and stop,
        # the broker refuses writes
        load.stop()
        promised = load.acknowledged()
        # not how many it handled: some may have come twice
        wait_until(
            "the consumer to be at the end",
            lambda: {each.key for each in consumer.handled()} >= promised.keys(),
            120,
        )
        consumer.stop()
        # it does not wait for an answer to its last commit
        wait_until(
            "the broker to have the group's offsets",
            lambda: sum(pair.client.consumer_offsets("readers", TOPIC).values()) == len(promised),
        )
        handled = Counter(each.key for each in consumer.handled())
        assert handled.keys() == promised.keys()
        pair.client.set_broker_config("brokerPermission", 4)
        pair.caught_up()
        done = takeover(node.endpoint, "--format", "jsonl")
        assert done.returncode == 0, done.stderr
        row = json.loads(done.stdout)
        assert row["taken_over"]
        assert 0 < row["break_ms"] < 120_000
        assert "readers" in row["groups"]
        pair.broker.stop()

        with tandemlog.Producer(node.endpoint) as producer:
            sent = [
                producer.send(Message(TOPIC, b"%d" % number, keys=f"ours-{number}"))
                for number in range(200)
            ]
            assert all(future.result(30).queue_offset >= 0 for future in sent)
        with (
            tandemlog.Consumer(node.endpoint, group="readers") as ours,
            ours.follow(TOPIC, until_end=True) as stream,
        ):
            new = Counter(message.keys[0] for message in stream)
        assert new == {f"ours-{number}": 1 for number in range(200)}
        pair.served(promised)

        # a broker that is started again by mistake does not get its follower back
        pair.broker.restart()
        pair.broker.wait_until_serving()
        node.stop()
        node.start()
        with tandemlog.Producer(node.endpoint) as producer:
            assert producer.send(Message(TOPIC, b"still the master")).result(30)
        assert "it does not follow any more" in node.tail(100_000)
        assert node.stop() == 0
        check_alone(node.store)


def test_taking_over_from_a_broker_that_was_stopped(tmp_path: Path) -> None:
    with side_by_side(tmp_path, VERSION) as pair:
        node = pair.follow()
        with pair.load(messages=2_000) as load:
            load.wait_for_end()
            promised = load.acknowledged()
        pair.caught_up()
        pair.broker.stop()
        done = takeover(node.endpoint)
        assert done.returncode == 0, done.stderr
        assert "Writers had a break of" in done.stdout
        assert f'tandemlog.Producer("{node.endpoint}")' in done.stdout
        pair.served(promised)


def test_wrong_places_have_their_sentences(tmp_path: Path) -> None:
    """A name server's port, the HA port, another cluster's broker, a store with other data."""
    with side_by_side(tmp_path, VERSION) as pair:
        with pair.load(messages=500) as load:
            load.wait_for_end()
        node = pair.follow()
        pair.caught_up()
        assert node.stop() == 0
        log_end = json.dumps(sorted(each.name for each in (node.store / "commitlog").iterdir()))

        def says(words: str, **changes: object) -> None:
            node.settings.update(changes)
            node.start()
            wait_until(words, lambda: words in node.tail(20_000), 90)
            assert node.stop() == 0
            names = sorted(each.name for each in (node.store / "commitlog").iterdir())
            assert json.dumps(names) == log_end

        place = "rocketmq://127.0.0.1:"
        says("give the listen port of a broker", follow=f"{place}{pair.name_server.port}")
        says("127.0.0.1", follow=f"{place}{pair.broker.ha_port}")
        pair.broker.restart(brokerClusterName="another")
        pair.broker.wait_until_serving()
        says("holds the log of broker", follow=f"rocketmq://{pair.broker.address}")
        other = own_store(tmp_path / "other")
        node.settings["store"] = {**node.settings["store"], "directory": other}
        node.start()
        refusal = "holds data that did not come from"
        wait_until(refusal, lambda: refusal in node.tail(20_000), 90)
        assert node.stop() == 0


def own_store(folder: Path) -> Path:
    """A store that a master of tandemlog has written."""
    with Running(folder) as running:
        with tandemlog.Admin(running.master.endpoint) as admin:
            admin.create_topic("mine", 1)
        with tandemlog.Producer(running.master.endpoint) as producer:
            for number in range(50):
                producer.send(Message("mine", b"%d" % number)).result(60)
        assert running.master.stop() == 0
        return running.master.store
