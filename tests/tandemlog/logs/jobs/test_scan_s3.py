"""A scan of an archive in an object store that speaks S3."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from fakes.built_archives import archive_log
from fakes.log_builder import LogBuilder, varied
from helpers.s3_server import BUCKET, SECRET, S3Server, s3_server
from tandemlog.archive.open_store import open_object_store
from tandemlog.logs.job_errors import FetchError
from tandemlog.logs.jobs.scan import ScanOptions, scan
from tandemlog.logs.reading.log_source import open_log
from tandemlog.logs.reading.selection import Selection
from tandemlog.logs.reading.span_scan import Piece

pytestmark = pytest.mark.s3

URL = f"s3://{BUCKET}/archive"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Server]:
    with s3_server(monkeypatch) as running:
        yield running


def offsets(piece: Piece) -> list[int]:
    return piece.headers.physical_offset.tolist()  # type: ignore[no-any-return]


def test_topics_of_an_archive_in_s3(server: S3Server, tmp_path: Path) -> None:
    builder = varied(LogBuilder(tmp_path / "store", 1 << 14), 40)
    archive_log(open_object_store(URL), builder, 3000)
    for topics in ((), ("Orders", "six")):
        options = ScanOptions(Selection(topics), piece_bytes=4000)
        found = [at for window in scan(open_log(URL), options, offsets) for at in window]
        assert found == [
            each.physical_offset for each in builder.records if not topics or each.topic in topics
        ]


def test_options_are_given_to_s3fs(
    server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    builder = varied(LogBuilder(tmp_path / "store", 1 << 14), 5)
    archive_log(open_object_store(URL), builder, 3000)
    found = open_log(URL, storage={"key": "user", "secret": SECRET})
    assert SECRET not in repr(found)
    with pytest.raises(FetchError) as caught:
        open_log(URL, timeout_ms=10, storage={"endpoint_url": "http://127.0.0.1:1"})
    assert SECRET not in str(caught.value)
