"""The options that say how to connect, before and after a command's name."""

from pathlib import Path

import pytest
import typer

from tandemlog.transport.security import Security
from tandemlog_server.cli import app
from tandemlog_server.cli.shared import connecting, options
from tandemlog_server.cli.shared.connecting import taken_out


def test_options_are_found_in_both_forms() -> None:
    given = ["--token-file=a", "t", "--ca-file", "b", "--queues", "2", "--", "--cluster", "x"]
    rest, found = taken_out(given)
    assert rest == ["t", "--queues", "2", "--", "--cluster", "x"]
    assert found == {"token_file": "a", "ca_file": "b"}
    with pytest.raises(typer.BadParameter, match="--cluster needs a value"):
        taken_out(["--cluster"])


@pytest.fixture
def seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, Security]]:
    """What `tandemlog offsets` would connect to."""
    (tmp_path / "clusters.toml").write_text(
        '[prod]\nendpoint = "127.0.0.1:7"\ntoken = "tl_prod"\n[other]\nendpoint = "127.0.0.1:8"\n'
    )
    monkeypatch.setenv("TANDEMLOG_CONFIG_DIR", str(tmp_path))
    found: list[tuple[str, Security]] = []

    def run_admin(endpoint: str, timeout: float, *_: object, **_named: object) -> object:
        found.append((endpoint, options.connection_options(timeout).security))
        raise typer.Exit(0)

    monkeypatch.setattr("tandemlog_server.cli.shared.online.run_admin", run_admin)
    return found


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr("sys.argv", ["tandemlog", *arguments])
    with pytest.raises(SystemExit) as ended:
        app.main()
    assert isinstance(ended.value.code, int)
    return ended.value.code


@pytest.mark.parametrize(
    "arguments", [("--cluster", "prod", "topic", "list"), ("topic", "list", "--cluster=prod")]
)
def test_a_cluster_by_its_name(
    arguments: tuple[str, ...],
    seen: list[tuple[str, Security]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert run(monkeypatch, *arguments) == 0
    assert seen == [("127.0.0.1:7", Security(token="tl_prod"))]


def test_what_stands_nearer_counts(
    seen: list[tuple[str, Security]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = str(tmp_path / "t")
    monkeypatch.setenv("TANDEMLOG_CLUSTER", "other")
    monkeypatch.setenv("TANDEMLOG_TOKEN", "tl_env")
    run(monkeypatch, "topic", "list")
    run(monkeypatch, "--cluster", "other", "topic", "list", "--cluster", "prod")
    run(monkeypatch, "topic", "list", "--endpoint", "127.0.0.1:9", "--token-file", file)
    assert seen == [
        ("127.0.0.1:8", Security(token="tl_env")),
        ("127.0.0.1:7", Security(token="tl_prod")),
        ("127.0.0.1:9", Security(token_file=file)),
    ]


def test_nothing_said_is_the_default(
    seen: list[tuple[str, Security]], monkeypatch: pytest.MonkeyPatch
) -> None:
    run(monkeypatch, "topic", "list")
    assert seen == [(options.DEFAULT_ENDPOINT, Security())]


def test_faults_end_with_one_line(
    seen: list[tuple[str, Security]],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for arguments, words in (
        (("topic", "list", "--cluster", "prd"), "has no cluster 'prd'; there are: other, prod"),
        (("topic", "list", "--cert-file", "x"), "key_file is missing"),
    ):
        assert run(monkeypatch, *arguments) == 2
        err = capsys.readouterr().err
        assert words in err
        assert len(err.splitlines()) == 1
    assert not seen


def test_a_command_that_does_not_connect_needs_no_profile(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TANDEMLOG_CONFIG_DIR", str(tmp_path))
    monkeypatch.setenv("TANDEMLOG_CLUSTER", "gone")
    assert run(monkeypatch, "token", "new", "a", "--access", str(tmp_path / "access.toml")) == 0


def test_options_of_the_program_reach_other_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    connecting.choose_later({}, {"ca_file": "x", "cluster": ""})
    assert connecting.variables() == {"TANDEMLOG_CA_FILE": "x"}
