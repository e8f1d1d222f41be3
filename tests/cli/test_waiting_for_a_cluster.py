"""`tandemlog topic create` right after `tandemlog up`: it waits for the master that is to come."""

import pytest

from fakes.fake_cluster import running_cluster
from helpers.running import free_ports
from tandemlog_server.cli import app
from tandemlog_server.cli.commands.topic import PatientOptions
from tandemlog_server.cli.shared import online
from tandemlog_server.cli.shared.options import DEFAULT_TIMEOUT_S, connection_options


def create(monkeypatch: pytest.MonkeyPatch, endpoint: str, *options: str) -> int:
    arguments = ["tandemlog", "topic", "create", "new", "--endpoint", endpoint, *options]
    monkeypatch.setattr("sys.argv", arguments)
    monkeypatch.setattr(online, "SILENT_S", 0.0)
    with pytest.raises(SystemExit) as ended:
        app.main()
    return int(ended.value.code or 0)


def test_a_master_that_comes_later_is_waited_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    said = []
    with running_cluster(slaves=1) as cluster:
        cluster.call(lambda: cluster.cluster.promote(""))

        def write_note(text: str) -> None:
            """The cluster elects once a person is told."""
            said.append(text)
            cluster.call(lambda: cluster.cluster.promote("n1"))

        monkeypatch.setattr(online, "write_note", write_note)
        code = create(monkeypatch, cluster.endpoints[0])
    captured = capsys.readouterr()
    assert code == 0, captured.err
    assert [text.startswith("waiting for a master: 127.0.0.1:") for text in said] == [True]
    assert "new" in captured.out


def test_a_node_that_does_not_answer_yet_is_waited_for_as_long(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    [port] = free_ports(1)
    assert create(monkeypatch, f"127.0.0.1:{port}", "--timeout", "0.3") == 3
    assert "if a node is just starting, try again soon" in capsys.readouterr().err
    options = connection_options(PatientOptions().timeout, starting=True)
    assert options.connect_timeout_ms == options.retry_timeout_ms == 30_000
    assert connection_options(DEFAULT_TIMEOUT_S).connect_timeout_ms == 5_000
