"""How far the index is durable, as a file."""

import pytest

from fakes.indexes import NOW
from tandemlog.format.errors import FormatError
from tandemlog_server.storage.index.index_state import (
    IndexState,
    decode_index_state,
    encode_index_state,
)


def test_states_are_read_back_or_refused() -> None:
    state = IndexState(123, "20261121071456450", 7, NOW, 100)
    data = encode_index_state(state)
    assert decode_index_state(data) == state
    for damage in (data[:-3], data.replace(b"123", b"124"), b""):
        with pytest.raises(FormatError, match="checksum"):
            decode_index_state(damage)
