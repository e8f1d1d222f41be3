"""The access file: tokens come and go, what people wrote stays, and no token is in it."""

import stat
from pathlib import Path

import pytest

from tandemlog_server.cli import app
from tandemlog_server.cli.shared.exit_codes import NOT_FOUND
from tandemlog_server.node.access.access_editing import AccessEditError, Grant, edited, read_access
from tandemlog_server.node.access.access_file import parse_access
from tandemlog_server.node.access.identities import digest_of as bytes_of
from tandemlog_server.node.access.new_tokens import NewKey, hash_of, new_access_key, new_token

WRITTEN = """# ours
[[identity]]
name = "orders"     # the shop
tokens = ["sha256:HASH"]
read = ["orders-*"]
limits = { calls = 200 }

[[identity]]
name = "ops"
admin = true
""".replace("HASH", "0" * 64)


def test_what_people_wrote_stays(tmp_path: Path) -> None:
    path = tmp_path / "access.toml"
    path.write_text(WRITTEN)
    path.chmod(0o640)
    token = new_token()
    with edited(path) as file:
        assert file.add_token("orders", hash_of(token), Grant(read=("orders-*", "prices")))
    text = path.read_text()
    assert "# ours" in text
    assert "# the shop" in text
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    access = parse_access(text, "it")
    orders = access.of_token(bytes_of(token))
    assert orders is not None
    assert orders.name == "orders"
    assert orders.limits.calls == 200
    assert [each["read"] for each in read_access(path).identities()[:1]] == [["orders-*", "prices"]]


def test_a_new_file_is_for_its_owner_and_a_node_can_read_it(tmp_path: Path) -> None:
    path = tmp_path / "made" / "access.toml"
    tokens = {name: new_token() for name in ("n0", "ops", "orders")}
    grants = {
        "n0": Grant(node="n0"),
        "ops": Grant(admin=True, certificates=("ops",)),
        "orders": Grant(("a*",), ("b",), ("g",)),
    }
    for name, token in tokens.items():
        with edited(path) as file:
            assert not file.add_token(name, hash_of(token), grants[name])
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    text = path.read_text()
    access = parse_access(text, "it")
    found = {name: access.of_token(bytes_of(token)) for name, token in tokens.items()}
    assert [each.name if each else None for each in found.values()] == list(tokens)
    assert found["n0"] is not None
    assert found["n0"].node == "n0"
    assert found["ops"] is not None
    assert found["ops"].admin
    assert access.of_certificate("ops") is found["ops"]
    assert not any(token in text for token in tokens.values())


def test_revoking(tmp_path: Path) -> None:
    path = tmp_path / "access.toml"
    old, new = new_token(), new_token()
    with edited(path) as file:
        file.add_token("orders", hash_of(old), Grant(read=("*",)))
        file.add_token("orders", hash_of(new), Grant())
    with edited(path) as file:
        assert file.revoke("orders", keep_newest=True) == 1
    access = parse_access(path.read_text(), "it")
    assert access.of_token(bytes_of(old)) is None
    assert access.of_token(bytes_of(new)) is not None
    with edited(path) as file, pytest.raises(AccessEditError, match="no token of 'orders' begins"):
        file.revoke("orders", "zz")
    with edited(path) as file:
        assert file.revoke("orders", hash_of(new)[7:15]) == 1
    assert parse_access(path.read_text(), "it").identities[0].name == "orders"


def test_faults_are_named_and_change_nothing(tmp_path: Path) -> None:
    path = tmp_path / "access.toml"
    path.write_text("identity = 3\n")
    with pytest.raises(AccessEditError, match="identity must be tables"), edited(path) as file:
        file.add_token("a", hash_of("t"), Grant())
    assert path.read_text() == "identity = 3\n"
    path.write_text("[[identity\n")
    with pytest.raises(AccessEditError, match="is not TOML"):
        read_access(path)
    with pytest.raises(AccessEditError, match="does not exist"):
        read_access(tmp_path / "none")
    path.write_text('[[identity]]\nname = "a"\nnode = "n0"\n')
    with pytest.raises(AccessEditError, match="is that of node 'n0'"), edited(path) as file:
        file.add_token("a", hash_of("t"), Grant(node="n1"))
    with (
        pytest.raises(AccessEditError, match="no identity 'b'; there: a"),
        edited(path) as file,
    ):
        file.revoke("b")


def test_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    access, out = tmp_path / "access.toml", tmp_path / "orders.token"

    def run(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.argv", ["tandemlog", "token", *arguments])
        with pytest.raises(SystemExit) as ended:
            app.main()
        captured = capsys.readouterr()
        assert isinstance(ended.value.code, int)
        return ended.value.code, captured.out, captured.err

    code, token, err = run("new", "ops", "--admin", "--access", str(access))
    assert (code, err) == (0, "")
    known = parse_access(access.read_text(), "it").of_token(bytes_of(token.strip()))
    assert known is not None
    assert known.admin
    options = ("--read", "orders-*", "--out", str(out), "--access", str(access))
    assert run("new", "orders", *options) == (0, "", "")
    assert stat.S_IMODE(out.stat().st_mode) == 0o600
    code, listed, _ = run("list", "--access", str(access))
    assert hash_of(out.read_text().strip())[7:19] in listed
    assert out.read_text().strip() not in listed
    assert run("revoke", "orders", "--access", str(access))[:2] == (0, "1 of orders revoked\n")
    assert run("revoke", "orders", "--access", str(access))[0] != 0
    assert run("new", "a b", "--access", str(access))[0] == 2


def test_access_keys_come_and_go_beside_tokens(tmp_path: Path) -> None:
    path = tmp_path / "access.toml"
    path.write_text(WRITTEN)
    first, second = new_access_key("orders"), new_access_key("orders")
    with edited(path) as file:
        assert file.add_key("orders", first, Grant(write=("orders-new",)))
        assert file.add_key("orders", second, Grant())
    access = parse_access(path.read_text(), "it")
    for key in (first, second):
        found = access.of_key(key.key)
        assert found is not None
        assert (found[0].name, found[1]) == ("orders", key.secret)
    with edited(path) as file:
        assert file.revoke_keys("orders", first.key) == 1
    assert parse_access(path.read_text(), "it").of_key(first.key) is None
    assert parse_access(path.read_text(), "it").of_key(second.key) is not None
    with edited(path) as file:
        assert file.revoke_keys("orders") == 1
        assert file.revoke_keys("orders") == 0
    assert "# the shop" in path.read_text()
    assert parse_access(path.read_text(), "it").of_key(second.key) is None


def test_keys_that_people_wrote_as_tables_stay(tmp_path: Path) -> None:
    path = tmp_path / "access.toml"
    path.write_text(
        '[[identity]]\nname = "orders"\nadmin = true\n'
        '[[identity.access_keys]]\nkey = "old"\nsecret = "12345678"\n\n[[identity]]\nname = "b"\n'
    )
    with edited(path) as file:
        file.add_key("orders", NewKey("new", "abcdefgh"), Grant())
    access = parse_access(path.read_text(), "it")
    found = {name: access.of_key(name) for name in ("old", "new")}
    assert {name: each and each[1] for name, each in found.items()} == {
        "old": "12345678",
        "new": "abcdefgh",
    }


def test_a_key_is_of_one_identity(tmp_path: Path) -> None:
    path = tmp_path / "access.toml"
    with edited(path) as file:
        file.add_key("a", NewKey("shared", "12345678"), Grant(admin=True))
    with edited(path) as file, pytest.raises(AccessEditError, match="'shared' is one of 'a'"):
        file.add_key("b", NewKey("shared", "abcdefgh"), Grant())
    with edited(path) as file, pytest.raises(AccessEditError, match="has no access key 'x'"):
        file.revoke_keys("a", "x")


def test_the_command_prints_a_key_once_and_lists_it_without_its_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "access.toml"

    def run(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.argv", ["tandemlog", "token", *arguments, "--access", str(path)])
        with pytest.raises(SystemExit) as ended:
            app.main()
        out, err = capfd.readouterr()
        assert isinstance(ended.value.code, int)
        return ended.value.code, out, err

    code, printed, _ = run("new-key", "orders", "--write", "orders-*")
    assert code == 0
    fields = dict(line.split(": ") for line in printed.splitlines())
    assert list(fields) == ["accessKey", "secretKey"]
    found = parse_access(path.read_text(), "it").of_key(fields["accessKey"])
    assert found is not None
    assert (found[0].name, found[1]) == ("orders", fields["secretKey"])
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    _, listed, _ = run("list", "--format", "jsonl")
    assert fields["accessKey"] in listed
    assert fields["secretKey"] not in listed
    path.chmod(0o644)
    _, _, said = run("new-key", "orders", "--out", str(tmp_path / "tools.yml"))
    assert f"chmod 600 {path}" in said
    assert stat.S_IMODE((tmp_path / "tools.yml").stat().st_mode) == 0o600
    assert run("revoke-key", "orders", "--key", fields["accessKey"])[0] == 0
    assert parse_access(path.read_text(), "it").of_key(fields["accessKey"]) is None
    assert run("revoke-key", "orders")[:2] == (0, "1 of orders revoked\n")
    assert run("revoke-key", "orders")[0] == NOT_FOUND
