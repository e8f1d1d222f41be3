"""Work queues for people and for programs: policies, what is under way, dead letters."""

from enum import StrEnum
from typing import Any

import typer

from tandemlog.consume.reading.positions import EARLIEST, LATEST
from tandemlog.consume.work.work_admin import DeadLetter, GroupWork, QueueWork
from tandemlog.format.lease.policy import MAX_DELAY_MS, Backoff, GroupPolicy, Ordering, StartAt

from .tables import write_table

POLICY_COLUMNS = ("group", "max_attempts", "backoff", "ordered", "start")
WORK_COLUMNS = (
    "leased", "waiting_retry", "ready", "attempts", "oldest_unacked_timestamp", "dead_letters",
    "max_attempts", "backoff", "ordered",
)  # fmt: skip
QUEUE_COLUMNS = (
    "topic", "queue_id", "floor", "next_offset", "max_offset", "leased", "waiting_retry", "ready",
    "oldest_unacked_timestamp",
)  # fmt: skip
LETTER_COLUMNS = (
    "queue_offset", "origin_topic", "origin_queue_id", "origin_queue_offset", "attempts",
    "last_error", "first_attempt_timestamp", "store_timestamp", "size",
)  # fmt: skip


class Order(StrEnum):
    QUEUE = "queue"
    KEY = "key"
    NONE = "none"


class Begin(StrEnum):
    EARLIEST = EARLIEST
    LATEST = LATEST


def policy_row(policy: GroupPolicy) -> dict[str, Any]:
    return {
        "max_attempts": policy.max_attempts,
        "backoff": backoff_text(policy.backoff),
        "ordered": policy.ordering.name.lower(),
        "start": LATEST if policy.start_at is StartAt.LATEST else EARLIEST,
    }


def backoff_text(backoff: Backoff) -> str:
    """Seconds, as --backoff takes them where it can."""
    if backoff.levels_ms:
        return ",".join(f"{each / 1000:g}" for each in backoff.levels_ms)
    text = f"{backoff.initial_ms / 1000:g}"
    usual = Backoff()
    if (backoff.multiplier, backoff.max_ms) != (usual.multiplier, usual.max_ms):
        text += f" times {backoff.multiplier:g}, at most {backoff.max_ms / 1000:g}"
    return text


def backoff_option(text: str) -> float | list[float]:
    """Raises typer.BadParameter."""
    try:
        seconds = [float(each) for each in text.split(",")]
    except ValueError:
        raise typer.BadParameter(
            f"--backoff must be seconds, or several with commas between, not {text!r}"
        ) from None
    if not all(0 <= each * 1000 <= MAX_DELAY_MS for each in seconds):
        raise typer.BadParameter(
            f"--backoff: a pause has 0 to {MAX_DELAY_MS // 1000} seconds: {text!r}"
        )
    return seconds if len(seconds) > 1 else seconds[0]


def work_object(work: GroupWork) -> dict[str, Any]:
    """Everything, for programs."""
    return {**_work_row(work), **policy_row(work.policy), "queues": [*map(_queue_row, work.queues)]}


def write_work(work: GroupWork) -> None:
    row = {**_work_row(work), **policy_row(work.policy)}
    row["attempts"] = " ".join(
        f"{number}:{count}" for number, count in enumerate(work.attempts, start=1) if count
    )
    columns = WORK_COLUMNS if work.policy.ordering is not Ordering.NONE else WORK_COLUMNS[:-1]
    write_table([row], columns)
    typer.echo()
    write_table(map(_queue_row, work.queues), QUEUE_COLUMNS)


def letter_row(letter: DeadLetter) -> dict[str, Any]:
    return {
        "queue_offset": letter.queue_offset,
        "origin_topic": letter.origin_topic,
        "origin_queue_id": _known(letter.origin_queue_id),
        "origin_queue_offset": _known(letter.origin_queue_offset),
        "origin_msg_id": letter.origin_message_id,
        "attempts": letter.attempts,
        "last_error": letter.last_error,
        "first_attempt_timestamp": letter.first_attempt_ms or -1,
        "last_attempt_timestamp": letter.last_attempt_ms or -1,
        "store_timestamp": letter.store_timestamp,
        "size": letter.size,
    }


def _work_row(work: GroupWork) -> dict[str, Any]:
    return {
        "leased": work.leased,
        "waiting_retry": work.waiting_retry,
        "ready": work.ready,
        "attempts": list(work.attempts),
        "oldest_unacked_timestamp": work.oldest_unacked_ms or -1,
        "dead_letters": work.dead_letters,
    }


def _queue_row(queue: QueueWork) -> dict[str, Any]:
    return {
        "topic": queue.topic,
        "queue_id": queue.queue_id,
        "floor": queue.floor,
        "next_offset": queue.next_offset,
        "max_offset": queue.max_offset,
        "leased": queue.leased,
        "waiting_retry": queue.waiting_retry,
        "ready": queue.ready,
        "unacked": queue.unacked,
        "oldest_unacked_timestamp": queue.oldest_unacked_ms or -1,
    }


def _known(number: int) -> int | None:
    return None if number < 0 else number
