"""A log read through a node is the log that lies on its disk."""

import pickle
from pathlib import Path

import pytest

from fakes.log_builder import LogBuilder, varied
from fakes.segment_server import SegmentServer
from helpers.made_certificates import Authority
from tandemlog.logs.executors import InProcess
from tandemlog.logs.job_errors import FetchError, OptionError
from tandemlog.logs.jobs.audit import audit
from tandemlog.logs.jobs.compare import compare
from tandemlog.logs.jobs.rebuild import RebuildOptions, rebuild
from tandemlog.logs.reading.log_source import open_log

HERE = InProcess(2)


@pytest.fixture
def log(tmp_path: Path) -> LogBuilder:
    builder = varied(LogBuilder(tmp_path / "store", 8192))
    builder.write()
    return builder


@pytest.mark.parametrize("drop_after", [3, 1 << 30])
def test_the_same_records_through_a_node(log: LogBuilder, drop_after: int) -> None:
    """Also where its streams break off: they are opened again where they broke."""
    with SegmentServer(log.store, 8192, 0, log.end, drop_after) as node:
        result = audit(HERE, f"node:{node.endpoint}", target_bytes=5000)
        assert result.findings == []
        assert result.summary["records"] == len(log.records)
        assert compare(HERE, log.store, f"node:{node.endpoint}").summary["equal"]


def test_what_is_not_confirmed_is_not_read(log: LogBuilder, tmp_path: Path) -> None:
    last = log.records[len(log.records) // 2]
    with SegmentServer(log.store, 8192, 0, last.physical_offset) as node:
        result = rebuild(
            HERE, f"node:{node.endpoint}", tmp_path / "out", RebuildOptions(index=False)
        )
    assert result.summary["records"] == len(log.records) // 2


def test_a_log_that_begins_later(log: LogBuilder) -> None:
    start = next(each.physical_offset for each in log.records if each.physical_offset >= 8192)
    with SegmentServer(log.store, 8192, start, log.end) as node:
        result = audit(HERE, f"node:{node.endpoint}", target_bytes=5000)
    assert result.holds
    expected = [each for each in log.records if each.physical_offset >= start]
    assert result.summary["records"] == len(expected)


def test_one_stream_serves_a_whole_span(log: LogBuilder) -> None:
    with SegmentServer(log.store, 8192, 0, log.end) as node:
        audit(HERE, f"node:{node.endpoint}", target_bytes=1 << 30)
        assert node.streams <= 2


def test_a_node_that_is_not_there() -> None:
    with pytest.raises(FetchError, match=r"127\.0\.0\.1:1: unavailable"):
        open_log(endpoint="127.0.0.1:1", timeout_ms=30_000)
    with pytest.raises(OptionError, match="endpoint"):
        open_log(endpoint=",")


def test_the_next_endpoint_is_asked(log: LogBuilder) -> None:
    with SegmentServer(log.store, 8192, 0, log.end) as node:
        source = open_log(endpoint=f"127.0.0.1:1,{node.endpoint}", timeout_ms=30_000)
        assert source.end().offset == log.end


def test_a_node_with_tls_and_tokens(
    log: LogBuilder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By options, and by variables where a job's argument has no room for options."""
    authority = Authority(tmp_path / "ours")
    security = authority.client()
    given = {
        "ca_file": security.ca_file,
        "cert_file": security.cert_file,
        "key_file": security.key_file,
        "token": "tl_x",
    }
    with SegmentServer(log.store, 8192, 0, log.end, credentials=authority.node("n0")) as node:
        source = open_log(endpoint=node.endpoint, timeout_ms=30_000, connecting=given)
        assert "tl_x" not in repr(source)
        target = bytearray(64)
        reader = pickle.loads(pickle.dumps(source)).connect()
        assert reader.read_into(0, memoryview(target)) == 64
        reader.close()
        for name, variable in (("ca_file", "CA"), ("cert_file", "CERT"), ("key_file", "KEY")):
            monkeypatch.setenv(f"TANDEMLOG_{variable}_FILE", given[name])
        monkeypatch.setenv("TANDEMLOG_TOKEN", "tl_x")
        assert audit(HERE, f"node:{node.endpoint}", target_bytes=1 << 30).holds
        assert node.proofs == {"Bearer tl_x"}


@pytest.mark.parametrize("case", ["none", "another authority", "a file that is not there"])
def test_a_certificate_that_is_not_accepted_is_named(
    case: str, log: LogBuilder, tmp_path: Path
) -> None:
    ours = Authority(tmp_path / "ours")
    given, words = {"ca_file": ours.ca_file}, "the node requires a client certificate"
    if case == "another authority":
        given = {"ca_file": Authority(tmp_path / "theirs").ca_file}
        words = "signed by another authority than that of ca_file .*theirs"
    if case == "a file that is not there":
        given, words = {"ca_file": str(tmp_path / "gone")}, "cannot read .*gone"
    with (
        SegmentServer(log.store, 8192, 0, log.end, credentials=ours.node("n0")) as node,
        pytest.raises(FetchError, match=words),
    ):
        open_log(endpoint=node.endpoint, timeout_ms=30_000, connecting=given)
