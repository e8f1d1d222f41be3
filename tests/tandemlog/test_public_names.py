"""What `import tandemlog` gives, and what it costs."""

import ast
import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import tandemlog
from tandemlog import AsyncDelivery, AsyncWork, Delivery, Producer, Stream, Work
from tandemlog.consume.stream import AsyncStream
from tandemlog.produce.producer import AsyncProducer


def loaded_by(statement: str) -> set[str]:
    """The top-level modules that a fresh interpreter has after `statement`."""
    code = f"{statement}; import sys; print(*{{name.split('.')[0] for name in sys.modules}})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_the_package_alone_loads_nothing() -> None:
    assert not {"grpc", "google", "numpy", "asyncio"} & loaded_by("import tandemlog")


def test_the_format_loads_no_network() -> None:
    assert "grpc" not in loaded_by("import tandemlog.format.record.record")


@pytest.mark.parametrize("name", ["Producer", "AsyncProducer", "Consumer", "Admin"])
def test_a_client_loads_what_a_plain_client_has(name: str) -> None:
    """gRPC and numpy come with their first use."""
    # what an environment loads by itself at each start is not ours
    loaded = loaded_by(f"from tandemlog import {name}") - loaded_by("pass")
    loaded -= set(sys.stdlib_module_names)
    assert {each for each in loaded if "cython" not in each and not each.startswith("__")} <= {
        "tandemlog",
        "google",
        "tenacity",
        "typing_extensions",
        "zlib_ng",
    }


def modules_loaded_by(statement: str) -> list[str]:
    code = f"{statement}; import sys; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.split()


def test_a_producer_loads_nothing_that_reads() -> None:
    """Also not once it is open."""
    loaded = modules_loaded_by(
        "import tandemlog.sync.sync_producer, tandemlog.produce.producer_core"
    )
    others = ("tandemlog.consume", "tandemlog.admin", "tandemlog.format.columns", "tandemlog.arrow")
    assert [each for each in loaded if each.startswith(others)] == []


def test_what_talks_to_a_cluster_is_loaded_with_the_first_producer() -> None:
    """0.15 s of processor time for the class: neither protobuf nor tenacity, which take a third of
    what a client takes to load, nor what uses them."""
    loaded = modules_loaded_by("import tandemlog; tandemlog.Producer, tandemlog.errors")
    others = ("google.protobuf", "tenacity", "tandemlog.v1")
    allowed = {"tandemlog.cluster", "tandemlog.cluster.connection_options"}
    assert [each for each in loaded if each.startswith(others)] == []
    assert {each for each in loaded if each.startswith("tandemlog.cluster")} == allowed


@pytest.mark.parametrize("name", tandemlog.__all__)
def test_every_public_name_is_there(name: str) -> None:
    assert getattr(tandemlog, name) is not None
    assert name in dir(tandemlog)


def imports_for_type_checkers() -> list[str]:
    """The names that a type checker sees, of the block that is not run."""
    source = Path(tandemlog.__file__).read_text()
    [block] = [
        node
        for node in ast.parse(source).body
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    ]
    found = []
    for node in block.body:
        assert isinstance(node, ast.ImportFrom)
        found += [f"{node.module or ''}:{alias.name}" for alias in node.names]
    return found


def test_the_public_names_are_listed_alike_for_everyone() -> None:
    """For type checkers, for `import *`, and for who asks for one: three lists of the same."""
    modules = {f"{module}:{name}" for module, names in tandemlog._MODULES.items() for name in names}
    shown = imports_for_type_checkers()
    assert set(shown) == modules | {":errors"}
    assert sorted(each.split(":")[1] for each in shown) == sorted(tandemlog.__all__)


def test_other_names_are_not() -> None:
    with pytest.raises(AttributeError, match="nothing_like_this"):
        _ = tandemlog.nothing_like_this


@pytest.mark.parametrize(
    ("plain", "asynchronous"),
    [
        (Producer, AsyncProducer),
        (Stream, AsyncStream),
        (Work, AsyncWork),
        (Delivery, AsyncDelivery),
    ],
)
def test_what_is_by_hand_has_the_methods_of_asyncio(plain: type, asynchronous: type) -> None:
    def methods(kind: type) -> dict[str, list[str]]:
        return {
            name: [str(each) for each in inspect.signature(member).parameters.values()]
            for name, member in inspect.getmembers(kind, inspect.isfunction)
            if not name.startswith("_") and name != "open"
        }

    assert methods(plain) == methods(asynchronous)
