"""What docs/from-kafka.md and docs/from-rocketmq.md call by a name of ours exists.

`Stream.seek` is an attribute or a field of the class, `tandemlog group reset` a command, and
`store.flush` a setting of a node.
"""

import dataclasses
import re

import pytest

import tandemlog
from documents.pages import DOCS
from tandemlog_server.node.settings.node_config import NodeConfig

PAGES = ("from-kafka.md", "from-rocketmq.md")
SECTIONS = "store|replication|put|pull|limits"


def codes(page: str) -> set[str]:
    return set(re.findall(r"`([^`\n]+)`", (DOCS / page).read_text(encoding="utf-8")))


def has(kind: type, name: str) -> bool:
    fields = {each.name for each in dataclasses.fields(kind)} if _is_dataclass(kind) else set()
    return name in fields or hasattr(kind, name)


def _is_dataclass(kind: type) -> bool:
    return dataclasses.is_dataclass(kind)


@pytest.mark.parametrize("page", PAGES)
def test_the_names_of_the_client_exist(page: str) -> None:
    found = 0
    for code in codes(page):
        for owner, name in re.findall(r"^([A-Z]\w+)\.(\w+)", code):
            if owner in tandemlog.__all__:
                found += 1
                assert has(getattr(tandemlog, owner), name), code
    assert found >= 12


def commands() -> dict[str, str]:
    """The section of each command in docs/cli.md, which is generated from the program."""
    text = (DOCS / "cli.md").read_text(encoding="utf-8")
    parts = re.split(r"^##+ `(tandemlog .*)`$", text, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


@pytest.mark.parametrize("page", PAGES)
def test_the_commands_exist(page: str) -> None:
    known = commands()
    found = 0
    for code in codes(page):
        words = code.split()
        if words[0] != "tandemlog" or len(words) < 2:
            continue
        name = max((each for each in known if f"{code} ".startswith(f"{each} ")), key=len)
        rest = words[len(name.split()) :]
        assert not rest or not rest[0].islower() or rest[0].startswith("-"), code
        for option in rest:
            assert not option.startswith("--") or option in known[name], code
        found += 1
    assert found >= 15


@pytest.mark.parametrize("page", PAGES)
def test_the_settings_exist(page: str) -> None:
    for code in codes(page):
        if re.fullmatch(rf"({SECTIONS})(\.\w+)+", code):
            value: object = NodeConfig()
            for name in code.split("."):
                assert hasattr(value, name), code
                value = getattr(value, name)
