"""A line about the event loop of an earlier test is not taken for one of this test's."""

import asyncio
import logging

import pytest

ASYNCIO = logging.getLogger("asyncio")


def _logged(error: Exception) -> None:
    try:
        raise error
    except type(error):
        ASYNCIO.exception("Exception in callback PollerCompletionQueue._handle_events()")


def test_a_call_back_to_a_closed_loop_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    loop = asyncio.new_event_loop()
    loop.close()
    with pytest.raises(RuntimeError) as refused:
        loop.call_soon_threadsafe(print)
    _logged(refused.value)
    assert not caplog.records


@pytest.mark.parametrize("error", [RuntimeError("no running event loop"), ValueError("closed")])
def test_every_other_error_reaches_the_test(
    caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    _logged(error)
    assert [record.exc_info is not None for record in caplog.records] == [True]
