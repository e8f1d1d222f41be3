import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tandemlog.errors import InvalidArgumentError
from tandemlog.format.arrays.byte_column import ByteColumn
from tandemlog.produce.columns_input import byte_column, integer_column


def values(column: ByteColumn) -> list[bytes | None]:
    return [
        None
        if column.valid is not None and not column.valid[index]
        else column.data[start:end].tobytes()
        for index, (start, end) in enumerate(
            zip(column.offsets[:-1].tolist(), column.offsets[1:].tolist(), strict=True)
        )
    ]


@given(
    st.lists(st.one_of(st.none(), st.binary(max_size=9)), max_size=20),
    st.integers(0, 5),
    st.sampled_from([pa.binary(), pa.large_binary()]),
)
def test_arrow_arrays_and_their_slices(
    given: list[bytes | None], start: int, kind: pa.DataType
) -> None:
    array = pa.array(given, kind)
    assert values(byte_column(array, "x")) == given
    assert values(byte_column(array.slice(start), "x")) == given[start:]
    chunked = pa.chunked_array([array, array.slice(start)], kind)
    assert values(byte_column(chunked, "x")) == given + given[start:]
    assert values(byte_column(pa.chunked_array([array]), "x")) == given


def test_arrow_text_dictionaries_and_fixed_width() -> None:
    assert values(byte_column(pa.array(["ä", None, "b"]), "x")) == ["ä".encode(), None, b"b"]
    dictionary = pa.array(["a", "b", "a"]).dictionary_encode()
    assert values(byte_column(dictionary, "x")) == [b"a", b"b", b"a"]
    fixed = pa.array([b"ab", b"cd", b"ef"], pa.binary(2))
    assert values(byte_column(fixed.slice(1), "x")) == [b"cd", b"ef"]
    assert values(byte_column(pa.array([], pa.binary()), "x")) == []


def test_numpy_arrays() -> None:
    assert values(byte_column(np.array([b"a", b"bcd", b""]), "x")) == [b"a", b"bcd", b""]
    assert values(byte_column(np.array([b"ab", b"cd"]), "x")) == [b"ab", b"cd"]
    assert values(byte_column(np.array(["ä", "b"]), "x")) == ["ä".encode(), b"b"]
    assert values(byte_column(np.array([b"a", None], object), "x")) == [b"a", None]
    assert values(byte_column(np.arange(6, dtype=np.uint8).reshape(3, 2), "x")) == [
        b"\x00\x01",
        b"\x02\x03",
        b"\x04\x05",
    ]


def test_a_pair_of_data_and_offsets() -> None:
    pair = (np.frombuffer(b"abcdef", np.uint8), np.array([1, 3, 3, 6]))
    assert values(byte_column(pair, "x")) == [b"bc", b"", b"def"]
    assert values(byte_column((b"abc", np.array([0, 3])), "x")) == [b"abc"]


def test_lists() -> None:
    assert values(byte_column([b"a", b""], "x")) == [b"a", b""]
    assert values(byte_column(["ä", None, b"c", bytearray(b"d")], "x")) == [
        "ä".encode(),
        None,
        b"c",
        b"d",
    ]


@pytest.mark.parametrize(
    "given",
    [
        "text",
        b"bytes",
        [1, 2],
        np.array([1.5]),
        pa.array([1, 2]),
        (b"abc", np.array([0, 9])),
        (b"abc", np.array([2, 1])),
    ],
)
def test_what_is_no_column_of_bytes(given: object) -> None:
    with pytest.raises(InvalidArgumentError, match="keys"):
        byte_column(given, "keys")


def test_columns_of_whole_numbers() -> None:
    assert integer_column([1, 2], "q").tolist() == [1, 2]
    assert integer_column(pa.array([1, 2], pa.int32()), "q").tolist() == [1, 2]
    assert integer_column(pa.chunked_array([[1], [2]]), "q").tolist() == [1, 2]
    for wrong in ([1.5], pa.array([1, None]), [[1]], ["a"]):
        with pytest.raises(InvalidArgumentError, match="q"):
            integer_column(wrong, "q")
