"""`tandemlog top` as text, of a node that serves HTTP: what it may see, and what it says else."""

import asyncio
from pathlib import Path

import pytest

from fakes.authority import Authority
from fakes.secured_node import access_text, running, settings, token
from helpers.cli_node import program
from tandemlog import Message, Security
from tandemlog.produce.producer import AsyncProducer
from tandemlog_server.storage.metadata.topics import TopicConfig

ONCE = ("top", "--once", "--interval", "0.1")


@pytest.mark.parametrize("secured", [False, True])
async def test_a_snapshot(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    secured: bool,
) -> None:
    authority = Authority() if secured else None
    access = access_text(op={"admin": True, "read": ["*"], "write": ["*"]}) if secured else ""
    config = settings(tmp_path / "node", authority=authority, access=access, http=True)
    async with running(config) as node:
        node.store.create_topic(TopicConfig("orders", 3, 3))
        options: list[str] = []
        security = Security()
        if authority is not None:
            ca_file = str(authority.write(tmp_path))
            monkeypatch.setenv("TANDEMLOG_TOKEN", token("op"))
            options = ["--ca-file", ca_file]
            security = Security(ca_file=ca_file, token=token("op"))
        async with AsyncProducer(node.endpoints.listen, security=security) as producer:
            await (await producer.send(Message("orders", b"x" * 100)))
        run = program(node.endpoints.listen, monkeypatch, capfd)
        code, out, err = await asyncio.to_thread(run, *ONCE, *options)
        assert (code, err) == (0, "")
        assert ("the certificate" in out) == secured  # which is new, and ends soon
        assert "n0    master " in out
        assert "cannot be read" not in out
        (traffic,) = (part for part in out.split("\n\n") if part.startswith("node  in/s"))
        assert traffic.splitlines()[1].split() == ["n0", "0", "0", "0", "0"]
        code, out, err = await asyncio.to_thread(run, *ONCE, "--page", "topics", *options)
        assert (code, err) == (0, "")
        row = next(line for line in out.splitlines() if line.startswith("orders "))
        assert row.split() == ["orders", "3", "0", "0", "0", "0", "1"]


async def test_a_wrong_token_ends_it_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    authority = Authority()
    config = settings(
        tmp_path / "node", authority=authority, access=access_text(op={"admin": True}), http=True
    )
    options = ["--ca-file", str(authority.write(tmp_path))]
    async with running(config) as node:
        run = program(node.endpoints.listen, monkeypatch, capfd)
        monkeypatch.setenv("TANDEMLOG_TOKEN", "wrong")
        code, out, err = await asyncio.to_thread(run, *ONCE, *options)
        assert (code, out) == (5, "")
        assert len(err.splitlines()) == 1


async def test_a_node_without_http_has_no_rates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    async with running(settings(tmp_path / "node")) as node:
        node.store.create_topic(TopicConfig("orders", 3, 3))
        run = program(node.endpoints.listen, monkeypatch, capfd)
        code, out, err = await asyncio.to_thread(run, *ONCE)
        assert (code, err) == (0, "")
        assert "n0: its metrics cannot be read: it has no HTTP port (http_listen)" in out
        code, out, err = await asyncio.to_thread(run, *ONCE, "--page", "topics")
        assert (code, err) == (0, "")
        assert ["orders", "3"] in [line.split() for line in out.splitlines()]
