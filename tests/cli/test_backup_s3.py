"""`backup` and `restore` with an object store that speaks S3: programs of their own, which find the
server and the credentials in their environment."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from helpers.s3_server import BUCKET, SECRET, S3Server, Trouble, s3_server
from helpers.stored_folder import SIZES, Folder
from tandemlog_server.storage.message_store import MessageStore
from tandemlog_server.storage.tools.compare_stores import compare

pytestmark = pytest.mark.s3

URL = f"s3://{BUCKET}/of/the/shop"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Server]:
    with s3_server(monkeypatch) as running:
        yield running


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    made = Folder(tmp_path / "store")
    made.put(40, epoch=2)
    return made


def call(*arguments: str | Path, **environment: str) -> tuple[int, str, str]:
    ended = subprocess.run(
        [sys.executable, "-m", "tandemlog", *map(str, arguments)],
        capture_output=True,
        check=False,
        timeout=120,
        text=True,
        env={**os.environ, **environment},
    )
    assert SECRET not in ended.stdout + ended.stderr
    return ended.returncode, ended.stdout, ended.stderr


def test_a_backup_is_kept_and_restored(server: S3Server, folder: Folder, tmp_path: Path) -> None:
    out = tmp_path / "restored"
    code, text, err = call("backup", folder.directory, URL, "-f", "jsonl", *SIZES)
    assert (code, err) == (0, "")
    assert json.loads(text)["begin"] == 0
    folder.put(40)
    code, text, err = call("backup", folder.directory, URL, "-f", "jsonl", *SIZES)
    assert (code, err) == (0, "")
    last = json.loads(text)
    assert 0 < last["start"] < last["end"]
    code, text, _ = call("backup", "list", URL, "-f", "jsonl")
    assert (code, len(text.splitlines())) == (0, 2)
    before = str(last["end"] - 1)
    code, text, err = call(
        "backup", "prune", URL, "--before", before, "--grace", "now", "-f", "jsonl"
    )
    assert (code, err) == (0, "")
    begin = json.loads(text)["begin"]
    assert begin > 0
    assert json.loads(text)["objects"] > 0
    code, text, err = call("backup", "verify", URL, "-f", "jsonl")
    assert (code, err) == (0, "")
    assert (json.loads(text)["begin"], json.loads(text)["faults"]) == (begin, [])
    assert call("restore", URL, "--dir", out, *SIZES)[0] == 0
    store = MessageStore.open(replace(folder.config, directory=out))
    try:
        assert (store.log.min_offset, store.log.wrote.value) == (begin, last["end"])
        assert store.consumer_offsets.offset("G", "T", 0) == 80
    finally:
        store.close()


def test_the_endpoint_is_a_setting_of_fsspec_too(
    server: S3Server, folder: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "restored"
    monkeypatch.delenv("AWS_ENDPOINT_URL")
    here = {"FSSPEC_S3_ENDPOINT_URL": server.endpoint}
    assert call("backup", folder.directory, URL, *SIZES, **here)[::2] == (0, "")
    assert call("restore", URL, "--dir", out, *SIZES, **here)[0] == 0
    found = compare(folder.config, replace(folder.config, directory=out))
    assert [str(each) for each in found.faults] == []


def test_a_backup_that_was_refused_continues(
    server: S3Server, folder: Folder, tmp_path: Path
) -> None:
    """The server gives up in the middle: what was put until then is not put again."""
    puts: list[str] = []

    def overloaded(method: str, path: str) -> Trouble:
        if method == "PUT":
            puts.append(path)
        return "pass" if len(puts) <= 3 else "refused"

    server.trouble = overloaded
    code, out, err = call("backup", folder.directory, URL, *SIZES)
    assert (code, out) == (3, "")
    assert len(err.splitlines()) == 1
    assert URL in err
    assert call("backup", "verify", URL)[0] != 0
    server.trouble = lambda method, path: "pass"
    first, server.requests[:] = set(puts[:3]), []
    assert call("backup", folder.directory, URL, *SIZES)[::2] == (0, "")
    assert not first & {path for method, path in server.requests if method == "PUT"}
    assert call("backup", "verify", URL)[0] == 0


def test_who_may_not_write_is_told_so(server: S3Server, folder: Folder) -> None:
    server.trouble = lambda method, path: "denied" if method == "PUT" else "pass"
    code, out, err = call("backup", folder.directory, URL, *SIZES)
    assert (code, out) == (3, "")
    assert "PermissionError" in err
    assert URL in err
