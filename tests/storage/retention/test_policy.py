from tandemlog_server.storage.config import RetentionConfig
from tandemlog_server.storage.retention.policy import MS_PER_HOUR, Decision, LogFileAge, decide

CONFIG = RetentionConfig(reserved_hours=72, delete_hours=(4,))


def aged(hours: float) -> LogFileAge:
    return LogFileAge(2000, 1000, int(hours * MS_PER_HOUR))


def decided(
    oldest: LogFileAge | None,
    *,
    hour: int = 4,
    percent: int = 50,
    keep_from: int = 1 << 40,
    config: RetentionConfig = CONFIG,
) -> Decision:
    return decide(
        oldest,
        config,
        local_hour=hour,
        disk_used_percent=percent,
        keep_from=keep_from,
    )


def test_an_expired_file_goes_at_the_hour() -> None:
    decision = decided(aged(72))
    assert decision.drop == aged(72)
    assert "04 o'clock" in decision.reason


def test_nothing_goes_at_another_hour() -> None:
    assert decided(aged(100), hour=5) == Decision(None, "", False)


def test_a_young_file_stays() -> None:
    assert decided(aged(71)) == Decision(None, "", False)


def test_the_newest_file_stays_whatever_the_disk_says() -> None:
    assert decided(None, percent=99) == Decision(None, "", True)


def test_a_full_disk_lets_expired_files_go_at_any_hour() -> None:
    decision = decided(aged(100), hour=12, percent=75)
    assert decision == Decision(aged(100), "expired, the disk is 75 % full", False)
    assert decided(aged(1), hour=12, percent=75).drop is None


def test_a_fuller_disk_takes_young_files_too() -> None:
    decision = decided(aged(1), hour=12, percent=85)
    assert decision == Decision(aged(1), "the disk is 85 % full", False)


def test_young_files_stay_where_forcing_is_off() -> None:
    config = RetentionConfig(clean_forcibly=False)
    assert decided(aged(1), hour=12, percent=95, config=config) == Decision(None, "", True)


def test_the_warning_level_refuses_writes() -> None:
    assert decided(aged(1), percent=90).disk_full
    assert not decided(aged(1), percent=89).disk_full


def test_what_is_needed_stays_whatever_the_disk_says() -> None:
    assert decided(aged(100), percent=99, keep_from=2999).drop is None
    assert decided(aged(100), percent=99, keep_from=3000).drop == aged(100)
