"""What a broker that takes the store over reads of delays."""

from dataclasses import replace
from struct import unpack_from

from fakes.stores import CONFIG, DIRECTORY, Bench
from fakes.waiting import come, put_waiting, ready_desk, waiting_put
from tandemlog.format.delay.handle import handle_of
from tandemlog.format.files import store_json
from tandemlog_server.storage.services.broker_progress import BrokerProgress

SMALL = replace(CONFIG, commit_log_file_size=1 << 20, queue_file_size=20 * 100)
DELAY_OFFSETS = DIRECTORY / "config" / "delayOffset.json"
TIMER_CHECK = DIRECTORY / "config" / "timercheck"


def levels(bench: Bench) -> dict[str, int]:
    document = store_json.loads(bench.files.read_file(DELAY_OFFSETS))
    assert isinstance(document, dict)
    table: dict[str, int] = document["offsetTable"]
    return table


def timers(bench: Bench) -> tuple[int, ...]:
    return unpack_from(">4q", bench.files.read_file(TIMER_CHECK))


def test_it_names_the_first_that_waits() -> None:
    bench = Bench(SMALL)
    for number in range(3):
        put_waiting(bench, waiting_put(bench, f"l{number}", level=1))
        put_waiting(bench, waiting_put(bench, f"m{number}", level=3))
        put_waiting(bench, waiting_put(bench, f"t{number}", delay_ms=1_000 * (3 - number)))
        bench.clock.advance(0.2)
    desk = ready_desk(bench)
    progress = BrokerProgress(bench.store)
    assert progress.save()
    assert levels(bench) == {"1": 0, "3": 0}
    bench.clock.advance(0.9)
    come(bench, desk)
    assert progress.save()
    assert levels(bench) == {"1": 3, "3": 0}
    read_ms, log_position, offset, master_offset = timers(bench)
    assert read_ms == bench.clock.now_ms() // 1000 * 1000
    assert (log_position, offset, master_offset) == (0, 0, 0)
    bench.clock.advance(100)
    come(bench, desk)
    assert progress.save()
    assert levels(bench) == {"1": 3, "3": 3}
    assert timers(bench)[2:] == (3, 3)


def test_it_never_says_more_than_is_flushed() -> None:
    bench = Bench(SMALL)
    put_waiting(bench, waiting_put(bench, "a", level=1))
    desk = ready_desk(bench)
    progress = BrokerProgress(bench.store)
    assert progress.save()
    bench.clock.advance(2)
    assert desk.deliver() == 1
    bench.store.reput.run_to()
    assert not progress.save()
    assert levels(bench) == {"1": 0}
    bench.settle()
    assert progress.save()
    assert levels(bench) == {"1": 1}


def test_a_recalled_message_is_passed() -> None:
    bench = Bench(SMALL)
    put_waiting(bench, waiting_put(bench, "a", delay_ms=5_000))
    desk = ready_desk(bench)
    progress = BrokerProgress(bench.store)
    desk.recall(handle_of("T", bench.clock.now_ms() + 5_000, "a", 0))
    bench.settle()
    assert progress.save()
    # the recall itself stands behind it in the queue
    assert timers(bench)[2] == 2


def test_a_broker_s_wheel_goes_with_the_first_note() -> None:
    bench = Bench(SMALL)
    for name in ("timerwheel", "timerlog/00000000000000000000"):
        bench.files.make_directory((DIRECTORY / name).parent)
        bench.files.atomic_replace(DIRECTORY / name, b"stale")
    progress = BrokerProgress(bench.store)
    assert progress.save()
    assert bench.files.status(DIRECTORY / "timerwheel") is not None, "this node has no timers"
    put_waiting(bench, waiting_put(bench, "a", delay_ms=5_000))
    bench.settle()
    assert progress.save()
    assert bench.files.status(DIRECTORY / "timerwheel") is None
    assert bench.files.listdir(DIRECTORY / "timerlog") == []
