"""`http_proxy` of the environment is for the web: no channel of the program goes through it."""

import re
from pathlib import Path

import pytest

from fakes.fake_cluster import FakeCluster
from tandemlog import AsyncAdmin, errors
from tandemlog.cluster.connection_options import ConnectionOptions
from tandemlog.transport import channels

ROOT = Path(__file__).resolve().parents[3]
CHANNELS = Path("tandemlog/transport/channels.py")
MAKES_A_CHANNEL = re.compile(r"\b(in)?secure_channel\(|\baio\.Channel\(|\burlopen\(|trust_env=True")


def sources() -> list[Path]:
    named = ("tandemlog", "storage", "ha", "rocketmq", "node", "cli")
    packages = [ROOT / name for name in named if (ROOT / name).is_dir()]
    return [path for package in packages for path in package.rglob("*.py")]


def test_channels_are_made_in_one_place() -> None:
    found = [path for path in sources() if MAKES_A_CHANNEL.search(path.read_text())]
    assert [path.relative_to(ROOT) for path in found] == [CHANNELS]


def test_every_channel_made_there_has_the_settings() -> None:
    text = (ROOT / CHANNELS).read_text()
    made = re.findall(r"secure_channel\((.*)\)$", text, re.MULTILINE)
    assert len(made) == 4
    assert all(arguments.endswith("options=settings") for arguments in made)
    assert text.count("_prepared(endpoint, files, options)") == 2


@pytest.fixture
def dead_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "grpc_proxy", "HTTP_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    for name in ("no_proxy", "no_grpc_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.usefixtures("dead_proxy")
async def test_a_proxy_for_the_web_is_not_asked() -> None:
    quick = ConnectionOptions(retry_timeout_ms=5_000)
    async with FakeCluster() as cluster, AsyncAdmin(cluster.endpoints, connection=quick) as admin:
        assert await admin.topics() == []


@pytest.mark.usefixtures("dead_proxy")
async def test_it_is_asked_if_the_options_say_so() -> None:
    through = ConnectionOptions(retry_timeout_ms=300, connect_timeout_ms=300, http_proxy=True)
    async with FakeCluster() as cluster, AsyncAdmin(cluster.endpoints, connection=through) as admin:
        with pytest.raises(errors.NodeUnavailableError):
            await admin.topics()


def test_an_option_of_the_caller_is_kept() -> None:
    assert channels.THROUGH_PROXY == ("grpc.enable_http_proxy", 1)
