"""The checkpoint file, of this version and of older ones."""

from hypothesis import given
from hypothesis import strategies as st

from tandemlog.format.files.checkpoint import CHECKPOINT_SIZE, Checkpoint, decode_checkpoint

longs = st.integers(-(2**63), 2**63 - 1)


@given(st.builds(Checkpoint, longs, longs, longs, longs, longs, longs))
def test_round_trip(checkpoint: Checkpoint) -> None:
    encoded = checkpoint.encode()
    assert len(encoded) == CHECKPOINT_SIZE
    assert decode_checkpoint(encoded) == checkpoint


def test_files_of_older_brokers_lack_fields() -> None:
    encoded = Checkpoint(1, 2, 3, 4, 5, 6).encode()
    assert decode_checkpoint(encoded[:24] + bytes(4072)) == Checkpoint(1, 2, 3)
    assert decode_checkpoint(encoded[:40] + bytes(4056)) == Checkpoint(1, 2, 3, 4, 5)


def test_a_short_file_holds_what_is_there() -> None:
    encoded = Checkpoint(1, 2, 3, 4, 5, 6).encode()
    assert decode_checkpoint(encoded[:24]) == Checkpoint(1, 2, 3)
    assert decode_checkpoint(b"") == Checkpoint()


def test_times_are_trusted_with_a_margin() -> None:
    assert Checkpoint(10_000, 9_000, 1).min_timestamp == 6_000
    assert Checkpoint(10_000, 0).min_timestamp == 0
