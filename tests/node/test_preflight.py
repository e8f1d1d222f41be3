"""What keeps a node from starting is said in one line each, by the check and by the node."""

import os
import socket
import subprocess
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from helpers import forked
from helpers.running import free_ports, toml
from tandemlog.format.files.checkpoint import Checkpoint
from tandemlog_server.ha.replication_file import StateFile
from tandemlog_server.ha.state import HaState
from tandemlog_server.node.certs.folder import make_authority, make_certificate
from tandemlog_server.node.certs.owners import Owner, OwnerKind
from tandemlog_server.node.preflight import RELEASED_MS, faults, warnings
from tandemlog_server.node.settings.archive_section import ArchiveSection
from tandemlog_server.node.settings.node_config import NodeConfig
from tandemlog_server.node.settings.sections import StoreSection
from tandemlog_server.rocketmq.follow.following_file import Following, FollowingFile, TakenOver
from tandemlog_server.storage.disk.real_file_system import RealFileSystem
from tandemlog_server.storage.state_files.store_checkpoint import StoreCheckpoint
from tandemlog_server.storage.store_paths import StorePaths

NOW_MS = RELEASED_MS + 1_000_000_000
HOUR_MS = 3_600_000


def config(directory: Path, **fields: Any) -> NodeConfig:
    base: dict[str, Any] = {
        "listen": "127.0.0.1:0",
        "http_listen": "127.0.0.1:0",
        "store": {"directory": directory},
    }
    return NodeConfig(**{**base, **fields})


def said(settings: NodeConfig, now_ms: int = NOW_MS) -> list[str]:
    found = [str(each) for each in faults(settings, now_ms=now_ms)]
    assert all("\n" not in each for each in found)
    return found


def stored_until(directory: Path, newest_ms: int) -> None:
    files = RealFileSystem()
    StoreCheckpoint(StorePaths(directory).checkpoint, files).save(Checkpoint(newest_ms))


def test_nothing_is_wrong_and_nothing_is_made(tmp_path: Path) -> None:
    assert said(config(tmp_path / "deep" / "store")) == []
    assert list(tmp_path.iterdir()) == []


def test_an_archive_that_no_package_knows(tmp_path: Path) -> None:
    section = ArchiveSection(url="nothing-known://key:secret@bucket/x")
    (fault,) = said(config(tmp_path / "store", archive=section))
    assert fault.startswith("archive.url: nothing-known://***@bucket/x is no URL of an archive")
    assert said(config(tmp_path / "store", archive=ArchiveSection(url=str(tmp_path)))) == []
    assert list(tmp_path.iterdir()) == []


def test_a_port_that_is_taken(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        (line,) = said(config(tmp_path, http_listen=f"127.0.0.1:{port}"))
    assert line == (
        f"http_listen: cannot listen on 127.0.0.1:{port}: another process uses the port"
    )


def test_a_file_in_place_of_the_folder(tmp_path: Path) -> None:
    (tmp_path / "store").write_text("")
    (line,) = said(config(tmp_path / "store"))
    assert line.startswith(f"store.directory: {tmp_path / 'store'} is not a folder")


def test_a_folder_that_the_user_may_not_write_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tests may run as root, who may write everywhere."""
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    (line,) = said(config(tmp_path / "store"))
    assert line == (
        f"store.directory: user {os.geteuid()} may not write to {tmp_path}, and "
        f"{tmp_path / 'store'} is not there yet; give the folder to that user, or run the node as "
        "its owner"
    )


def test_a_folder_of_the_store_that_may_not_be_written_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("commitlog", "config"):
        (tmp_path / name).mkdir()
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path).name != "config")
    (line,) = said(config(tmp_path))
    assert (
        f"user {os.geteuid()} may not write to {tmp_path / 'config'}, where the store keeps" in line
    )


def test_a_folder_of_another_node(tmp_path: Path) -> None:
    other = config(tmp_path, node_id="n7").ha_config(
        endpoint="127.0.0.1:1", http_endpoint="", store_host="127.0.0.1:1"
    )
    StateFile(tmp_path, RealFileSystem()).load(other)
    (line,) = said(config(tmp_path, node_id="n1"))
    assert "belongs to node 'n7', but the configuration says 'n1'" in line


@pytest.mark.parametrize(
    ("newest_ms", "tolerance_ms", "refused"),
    [
        (NOW_MS, HOUR_MS, False),
        (NOW_MS + HOUR_MS, HOUR_MS, False),
        (NOW_MS + HOUR_MS + 1, HOUR_MS, True),
        (NOW_MS + HOUR_MS + 1, 2 * HOUR_MS, False),
    ],
)
def test_a_clock_behind_the_newest_message(
    tmp_path: Path, newest_ms: int, tolerance_ms: int, refused: bool
) -> None:
    stored_until(tmp_path, newest_ms)
    found = said(config(tmp_path, clock_tolerance_ms=tolerance_ms))
    assert len(found) == refused
    if refused:
        assert "the clock of this machine says 2026-01-12" in found[0]
        assert f"clock_tolerance_ms to more than {newest_ms - NOW_MS} " in found[0]


def test_a_clock_that_was_never_set(tmp_path: Path) -> None:
    (line,) = said(config(tmp_path), now_ms=86_400_000)
    assert line.startswith("the clock of this machine says 1970-01-02 00:00:00 UTC")


def certified(folder: Path, **files: str) -> dict[str, str]:
    """A [tls] section whose files are made at NOW, with some of them replaced by `files`."""
    at = datetime.fromtimestamp(NOW_MS / 1000, UTC)
    if not (folder / "ca.key").exists():
        make_authority(folder, "tandemlog", 30, at)
        for name in ("n0", "n1"):
            make_certificate(
                folder, Owner("tandemlog", OwnerKind.NODE, name), ["127.0.0.1"], 10, at
            )
    names = {"ca_file": "ca.crt", "cert_file": "n0.crt", "key_file": "n0.key", **files}
    return {key: str(folder / name) for key, name in names.items()}


def test_certificates(tmp_path: Path) -> None:
    good = config(tmp_path, tls=certified(tmp_path))
    assert said(good) == []
    (other,) = said(config(tmp_path, tls=certified(tmp_path, key_file="n1.key")))
    assert f"the key in {tmp_path / 'n1.key'} does not fit the certificate" in other
    (gone,) = said(config(tmp_path, tls=certified(tmp_path, cert_file="gone.crt")))
    assert f"{tmp_path / 'gone.crt'}" in gone
    (expired,) = said(good, now_ms=NOW_MS + 11 * 24 * HOUR_MS)
    assert f"{tmp_path / 'n0.crt'} expired on 2026-01-22" in expired
    two = config(
        tmp_path,
        tls=certified(tmp_path, key_file="n1.key"),
        security={"access_file": str(tmp_path / "none.toml")},
    )
    assert len(said(two)) == 2


def test_several_faults_are_all_told(tmp_path: Path) -> None:
    (tmp_path / "store").write_text("")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        endpoint = f"127.0.0.1:{taken.getsockname()[1]}"
        found = said(config(tmp_path / "store", listen=endpoint))
    assert [line.partition(":")[0] for line in found][:2] == ["listen", "store.directory"]


def test_others_that_cannot_be_reached_are_no_fault(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    settings = config(tmp_path, role="slave", master=f"127.0.0.1:{port}")
    assert said(settings) == []
    (line,) = warnings(settings)
    assert line == f"master: 127.0.0.1:{port} cannot be reached now: Connection refused"


# ---- the program


def run(
    tmp_path: Path, settings: dict[str, Any], *options: str
) -> subprocess.CompletedProcess[str]:
    path = tmp_path / "node.toml"
    path.write_text(toml(settings))
    return forked.run("node", "--config", str(path), *options, timeout_s=60)


def test_the_node_and_the_check_say_the_same(tmp_path: Path) -> None:
    """And the check says all, where the node ends with the first."""
    port, http = free_ports(2)
    store = tmp_path / "store"
    stored_until(store, time.time_ns() // 1_000_000 + 2 * HOUR_MS)
    settings = {
        "listen": f"127.0.0.1:{port}",
        "http_listen": f"127.0.0.1:{http}",
        "store": {"directory": store},
    }
    with socket.create_server(("127.0.0.1", http)):
        checked = run(tmp_path, settings, "--check")
        started = run(tmp_path, settings)
    first, second = checked.stderr.splitlines()
    assert first.startswith("tandemlog: http_listen: cannot listen on")
    assert second.startswith("tandemlog: the clock of this machine says")
    assert started.stderr.splitlines() == [first]
    assert checked.returncode == started.returncode == 8


def test_all_is_well(tmp_path: Path) -> None:
    port, http = free_ports(2)
    settings = {
        "listen": f"127.0.0.1:{port}",
        "http_listen": f"127.0.0.1:{http}",
        "store": {"directory": tmp_path / "store"},
    }
    checked = run(tmp_path, settings, "--check")
    assert checked.returncode == 0, checked.stderr
    assert "would start with the store in" in checked.stdout
    assert not (tmp_path / "store").exists()


def test_a_broker_to_follow_that_cannot_be_reached_is_a_warning(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    store = StoreSection(directory=tmp_path)
    config = NodeConfig(follow=f"rocketmq://127.0.0.1:{port}", store=store)
    (warning,) = warnings(config)
    assert warning.startswith(f"follow: 127.0.0.1:{port} cannot be reached now")


def test_a_relay_that_no_broker_can_follow_yet(tmp_path: Path) -> None:
    """Else a slave broker behind it would stay empty without a word."""
    with socket.create_server(("127.0.0.1", 0)) as broker:
        relay = config(
            tmp_path,
            follow=f"rocketmq://127.0.0.1:{broker.getsockname()[1]}",
            rocketmq={"listen": "127.0.0.1:0"},
        )
        (warning,) = warnings(relay)
        assert "nothing listens there before this node has taken over" in warning
        note = FollowingFile(tmp_path, RealFileSystem())
        note.save(Following("shop", "broker-a"))
        assert [*warnings(relay)] == [warning]
        note.save(Following("shop", "broker-a", TakenOver(77, NOW_MS)))
        assert [*warnings(relay)] == []


def test_a_store_of_an_elected_cluster_without_a_coordinator(tmp_path: Path) -> None:
    made = config(tmp_path)
    state = HaState(made.cluster_id, made.node_id, "i", 5, cluster_uuid="u")
    StateFile(tmp_path, RealFileSystem()).save(state)
    for fields in ({}, {"role": "slave", "master": "h:1"}, {"follow": "rocketmq://h:1"}):
        (line,) = said(config(tmp_path, **fields))
        assert "belongs to a cluster that elects its master (cluster_uuid u)" in line
    assert said(config(tmp_path, coordinator={"endpoints": ["h:1"]})) == []


def test_a_coordinator_section_that_lost_its_endpoints(tmp_path: Path) -> None:
    """Else the node would be a master by its configuration."""
    for fields in ({"members": ["a"]}, {"lease_ttl_s": 9}, {"endpoints": [], "user": "u"}):
        with pytest.raises(ValueError, match=r"endpoints is missing, and (members|lease|user)"):
            config(tmp_path, coordinator=fields)
    assert not config(tmp_path, coordinator={"endpoints": []}).elects
