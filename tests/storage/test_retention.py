from collections.abc import Sequence

from storage.config import RetentionConfig
from storage.retention import MS_PER_HOUR, Decision, LogFileAge, decide

CONFIG = RetentionConfig(reserved_hours=72, delete_hours=(4,))
NOW = 1_000 * MS_PER_HOUR


def ages(*hours: float) -> list[LogFileAge]:
    return [
        LogFileAge(number * 1000, 1000, int(NOW - age * MS_PER_HOUR))
        for number, age in enumerate(hours)
    ]


def cleaned(
    files: Sequence[LogFileAge],
    *,
    hour: int = 4,
    percent: int = 50,
    keep_from: int = 1 << 40,
    manual: bool = False,
    config: RetentionConfig = CONFIG,
) -> Decision:
    return decide(
        files,
        config,
        now_ms=NOW,
        local_hour=hour,
        disk_used_percent=percent,
        keep_from=keep_from,
        manual=manual,
    )


def test_expired_files_go_at_the_hour() -> None:
    decision = cleaned(ages(100, 90, 72, 71, 1))
    assert decision.drop_before == 3000
    assert decision.files == 3
    assert "04 o'clock" in decision.reason


def test_nothing_goes_at_another_hour() -> None:
    assert cleaned(ages(100, 90, 1), hour=5) == Decision(None, 0, "", False)


def test_a_young_file_ends_the_row() -> None:
    assert cleaned(ages(100, 1, 100, 1)).drop_before == 1000


def test_the_newest_file_stays() -> None:
    assert cleaned(ages(100)).drop_before is None
    assert cleaned(ages(100, 100)).drop_before == 1000


def test_a_full_disk_opens_the_round_at_any_hour() -> None:
    decision = cleaned(ages(100, 1, 1), hour=12, percent=75)
    assert decision.drop_before == 1000
    assert not decision.disk_full


def test_a_fuller_disk_takes_young_files_too() -> None:
    decision = cleaned(ages(2, 1, 1), hour=12, percent=85)
    assert decision.drop_before == 2000
    assert decision.reason == "the disk is 85 % full"


def test_young_files_stay_where_forcing_is_off() -> None:
    config = RetentionConfig(clean_forcibly=False)
    decision = cleaned(ages(2, 1, 1), hour=12, percent=95, config=config)
    assert decision.drop_before is None
    assert decision.disk_full


def test_the_warning_level_refuses_writes() -> None:
    assert cleaned(ages(1), percent=90).disk_full
    assert not cleaned(ages(1), percent=89).disk_full


def test_what_is_needed_stays_whatever_the_disk_says() -> None:
    assert cleaned(ages(100, 100, 100), percent=99, keep_from=1500).drop_before == 1000


def test_a_round_has_a_limit() -> None:
    config = RetentionConfig(delete_batch_max=2)
    assert cleaned(ages(*[100] * 9), config=config).files == 2


def test_an_operator_can_ask() -> None:
    assert cleaned(ages(100, 1), hour=12, manual=True).reason == "asked for"
