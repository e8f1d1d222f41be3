"""Where the settings of a connection come from, and which place counts."""

from pathlib import Path

import pytest

from tandemlog.cluster.profiles import chosen, load_profile, profile_file
from tandemlog.errors import InvalidArgumentError
from tandemlog.transport.security import Security, is_loopback

PROFILES = """
[prod]
endpoint = "db0:1,db1:1"
ca_file = "prod/ca.crt"
token_file = "prod.token"

[test]
endpoint = "test:1"
cert_file = "/etc/test.crt"
key_file = "/etc/test.key"
"""


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "clusters.toml").write_text(PROFILES)
    return {"TANDEMLOG_CONFIG_DIR": str(tmp_path)}


def test_a_profile_has_names_relative_to_its_file(
    environment: dict[str, str], tmp_path: Path
) -> None:
    profile = load_profile("prod", environment)
    assert profile.endpoint == "db0:1,db1:1"
    assert profile.security == Security(
        ca_file=str(tmp_path / "prod/ca.crt"), token_file=str(tmp_path / "prod.token")
    )
    assert load_profile("test", environment).security.key_file == "/etc/test.key"


def test_options_before_variables_before_profile(environment: dict[str, str]) -> None:
    variables = {
        **environment,
        "TANDEMLOG_CLUSTER": "prod",
        "TANDEMLOG_TOKEN": "tl_env",
        "TANDEMLOG_CA_FILE": "env.crt",
    }
    found = chosen({"ca_file": "option.crt"}, variables)
    assert found.endpoint == "db0:1,db1:1"
    assert found.security.ca_file == "option.crt"
    assert (found.security.token, found.security.token_file) == ("tl_env", "")
    assert chosen({"endpoint": "here:1"}, variables).endpoint == "here:1"


def test_a_cluster_that_is_named_gets_nothing_of_another_one(environment: dict[str, str]) -> None:
    variables = {
        **environment,
        "TANDEMLOG_ENDPOINT": "elsewhere:1",
        "TANDEMLOG_TOKEN": "tl_elsewhere",
        "TANDEMLOG_CLUSTER": "test",
    }
    found = chosen({"cluster": "prod"}, variables)
    assert found.endpoint == "db0:1,db1:1"
    assert found.security.token == ""
    assert found.security.token_file.endswith("prod.token")
    assert found.security.cert_file == ""


def test_without_anything() -> None:
    assert chosen({}, {}).security == Security()
    assert not chosen({}, {}).security.tls
    assert profile_file({"XDG_CONFIG_HOME": "/x"}) == Path("/x/tandemlog/clusters.toml")
    assert profile_file({}).name == "clusters.toml"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "clusters.toml does not exist; it names clusters"),
        ("[other]\n[another]\n", "has no cluster 'prod'; there are: another, other"),
        ("[prod\n", "is not TOML"),
        pytest.param("a = " + "9" * 5_000, "is not TOML", id="digits"),
        pytest.param("a = " + "[" * 5_000, "is not TOML", id="brackets"),
        ("[prod]\ntokenfile = 'x'\n", r"\[prod\] tokenfile: unknown key: is token_file meant"),
        ("[prod]\ntoken = 3\n", r"\[prod\] token: must be text in quotes"),
        ("[prod]\ninsecure = 'yes'\n", "insecure: must be true or false"),
        ("[prod]\nendpoint = 'db0:x'\n", r"\[prod\] endpoint: "),
        ("[prod]\ncert_file = 'x'\n", "cluster prod: key_file is missing"),
        ("[prod]\ntoken = 'a b'\n", "cluster prod: token: it must be one line"),
    ],
)
def test_faults_are_named(content: str | None, words: str, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / "clusters.toml").write_text(content)
    with pytest.raises(InvalidArgumentError, match=words):
        load_profile("prod", {"TANDEMLOG_CONFIG_DIR": str(tmp_path)})


def test_secrets_are_in_no_text() -> None:
    security = Security(ca_file="ca", token="tl_secret")
    assert "tl_secret" not in repr(security)
    with pytest.raises(ValueError, match="token") as refused:
        Security(token="tl_secret\nx")
    assert "tl_secret" not in str(refused.value)


def test_what_is_on_this_machine() -> None:
    for endpoint in ("127.0.0.1:1", "127.9.9.9:1", "[::1]:1", "localhost:1"):
        assert is_loopback(endpoint), endpoint
    for endpoint in ("10.0.0.1:1", "[::]:1", "0.0.0.0:1", "localhost.example:1", "db0:1"):
        assert not is_loopback(endpoint), endpoint


def test_a_token_goes_to_other_machines_by_tls_only() -> None:
    assert Security(token="t").fault_with("db0:1")
    assert not Security(token="t").fault_with("127.0.0.1:1")
    assert not Security(token="t", insecure=True).fault_with("db0:1")
    assert not Security(token="t", ca_file="ca").fault_with("db0:1")
    assert not Security().fault_with("db0:1")
