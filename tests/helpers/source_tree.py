"""Our own modules and what they import, for the tests that look at the source.

Each module is parsed once for all of those tests: what a module imports is kept, its tree is not.
"""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("storage", "ha", "rocketmq", "node", "cli")
OWN = (*FOLDERS, "tandemlog")
SERVER = "tandemlog_server"
"""The folders of a node are imported as parts of this package; here they go by their folder."""
GENERATED = frozenset({"v1", "rocketmq_v2"})  # folders of stubs


def modules() -> Iterator[Path]:
    for package in OWN:
        for path in sorted((ROOT / package).rglob("*.py")):
            if not GENERATED.intersection(path.relative_to(ROOT).parts):
                yield path
    yield from sorted(ROOT.glob("pyspark_tandemlog*.py"))


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


@cache
def imports(path: Path) -> tuple[tuple[str, int], ...]:
    """Every module that the one at `path` imports, absolute, with its line."""
    return tuple(_imports(path))


def imported(path: Path) -> Iterator[tuple[str, int]]:
    """Every module of `imports`, by its folder."""
    for name, line in imports(path):
        yield name.removeprefix(f"{SERVER}."), line


def _imports(path: Path) -> Iterator[tuple[str, int]]:
    package = module_name(path).split(".")
    if path.name != "__init__.py":
        package = package[:-1]
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, node.lineno
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            target = ".".join([*base, *([node.module] if node.module else [])])
            yield target, node.lineno
            if node.level or target in OWN or target == SERVER:
                for alias in node.names:
                    yield f"{target}.{alias.name}", node.lineno
