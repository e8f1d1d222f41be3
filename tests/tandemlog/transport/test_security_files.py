"""The files of a Security are looked at once a second, and what does not fit is not taken."""

import logging
from pathlib import Path

import pytest

from helpers.made_certificates import Authority
from tandemlog.transport.security import Security
from tandemlog.transport.security_files import SecurityFileError, SecurityFiles


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def bearer(files: SecurityFiles) -> str:
    return dict(files.current().metadata).get("authorization", "")


def test_a_new_token_is_seen_within_a_second_and_makes_no_new_connection(tmp_path: Path) -> None:
    file, clock = tmp_path / "token", Clock()
    file.write_text("tl_one\n")
    files = SecurityFiles(Security(token_file=str(file)), clock)
    number = files.current().number
    assert bearer(files) == "Bearer tl_one"
    file.write_text("tl_other\n")
    assert bearer(files) == "Bearer tl_one"
    assert not files.token_is_new
    clock.now = 1.0
    assert bearer(files) == "Bearer tl_other"
    assert files.current().number == number
    assert files.token_is_new
    clock.now = 16.0
    assert not files.token_is_new
    assert "tl_other" not in repr(files.current())


def test_a_look_when_asked_for(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("tl_one")
    files = SecurityFiles(Security(token_file=str(file)), Clock())
    files.current()
    file.write_text("tl_other")
    assert files.current(look=True).metadata == (("authorization", "Bearer tl_other"),)


def test_renewed_certificates_need_new_connections(tmp_path: Path) -> None:
    clock, authority = Clock(), Authority(tmp_path)
    security = authority.client()
    files = SecurityFiles(security, clock)
    first = files.current()
    authority.client()
    assert files.current() is first
    clock.now = 1.0
    assert files.current().number != first.number
    assert files.current() is files.current()
    assert "PRIVATE" not in repr(files.current())


def test_half_of_a_renewed_pair_waits_for_the_other_half(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clock, authority = Clock(), Authority(tmp_path)
    security = authority.client()
    files = SecurityFiles(security, clock)
    first = files.current()
    certificate, key = Path(security.cert_file), Path(security.key_file)
    old = certificate.read_bytes()
    authority.client()
    new = certificate.read_bytes()
    certificate.write_bytes(old)
    with caplog.at_level(logging.WARNING):
        for second in (1, 2, 3):
            clock.now = second
            assert files.current() is first
    assert caplog.text.count("does not fit the certificate") == 1
    certificate.write_bytes(new)
    clock.now = 4
    assert files.current().number != first.number
    key.unlink()
    clock.now = 5
    assert files.current().credentials is not None


def test_the_first_reading_has_nothing_to_fall_back_on(tmp_path: Path) -> None:
    files = SecurityFiles(Security(token_file=str(tmp_path / "none")), Clock())
    for _ in range(2):
        with pytest.raises(SecurityFileError, match="none: No such file"):
            files.current()
    (tmp_path / "none").write_text("tl_x")
    assert bearer(files) == "Bearer tl_x"


def test_a_token_that_no_header_can_carry(tmp_path: Path) -> None:
    file = tmp_path / "token"
    for content, words in ((b"", "it is empty"), (b"a b", "one line"), (b"\xff", "one line")):
        file.write_bytes(content)
        files = SecurityFiles(Security(token_file=str(file)), Clock())
        with pytest.raises(SecurityFileError, match=words):
            files.current()
