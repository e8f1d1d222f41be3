"""A rate per second that may go into debt."""

import pytest

from tandemlog_server.storage.token_bucket import TokenBucket


def test_a_bucket_lets_its_rate_pass_whatever_the_sizes() -> None:
    bucket, now, passed = TokenBucket(1000, 0.0), 0.0, 0
    for size in (1, 700, 5000, 10, 2500, 999, 1) * 20:
        now += bucket.spend(size, now)
        passed += size
        assert passed <= 1000 * (1 + now) + 1e-6
    assert passed == pytest.approx(1000 * now, rel=0.05)


def test_a_bucket_that_rests_keeps_one_second() -> None:
    bucket = TokenBucket(10, 0.0)
    assert bucket.spend(10, 100.0) == 0
    assert bucket.spend(10, 100.0) == 1
    assert bucket.wait_s(100.5) == pytest.approx(0.5)
    assert bucket.wait_s(50.0) == pytest.approx(0.5)  # a clock that goes back changes nothing
