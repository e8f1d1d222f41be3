"""What a page shows of a body."""

import pytest

from tandemlog.format.errors import FormatError
from tandemlog_server.node.console.body_preview import PREVIEW_BYTES, preview


@pytest.mark.parametrize(
    ("body", "text", "hexadecimal"),
    [
        (b"", "", None),
        (b'{"a": 1}\r\n\t<script>', '{"a": 1}\r\n\t<script>', None),
        ("Bücher, 本".encode(), "Bücher, 本", None),
        (b"\x00\x01", None, "00 01"),
        (b"bell\x07", None, "62 65 6c 6c 07"),
        (b"\x1b[31m", None, "1b 5b 33 31 6d"),
        (b"\xc2\x85", None, "c2 85"),
        (b"\xff\xfe", None, "ff fe"),
        ("ü".encode()[:1], None, "c3"),
    ],
)
def test_text_is_text_and_the_rest_is_hex(
    body: bytes, text: str | None, hexadecimal: str | None
) -> None:
    assert preview(lambda: body) == {
        "size": len(body), "text": text, "hex": hexadecimal, "cut": False, "fault": "",
    }  # fmt: skip


def test_a_long_body_is_cut_and_a_character_at_the_cut_is_left_out() -> None:
    found = preview(lambda: ("a" * (PREVIEW_BYTES - 1) + "ü" * 5).encode())
    assert found["text"] == "a" * (PREVIEW_BYTES - 1)
    assert found["cut"] is True
    assert found["size"] == PREVIEW_BYTES + 9
    binary = preview(lambda: b"\x00" * (PREVIEW_BYTES + 1))
    assert len(binary["hex"]) == 3 * PREVIEW_BYTES - 1
    assert binary["cut"] is True


def test_a_body_that_cannot_be_read_has_a_fault() -> None:
    def damaged() -> bytes:
        raise FormatError("the body cannot be decompressed")

    found = preview(damaged)
    assert found["fault"] == "the body cannot be decompressed"
    assert found["text"] is None
    assert found["size"] is None
