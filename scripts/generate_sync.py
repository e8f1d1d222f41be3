"""Generate tandemlog/sync/generated from the clients for asyncio.

usage: python scripts/generate_sync.py [OUTPUT_FOLDER]

    async def topic(self, name: str) -> TopicInfo:        def topic(self, name: str) -> TopicInfo:
        # One topic; raises UnknownTopicError.        ─▶      # One topic; raises UnknownTopicError.
        for each in await ...                                 return self._thread.run(
                                                                  self._client.topic(name))

The output is committed, and a test compares it. Every public method is a call of the same one in
the clients' loop, with its signature, its defaults and its docstring; what else the synchronous
clients do is in SyncClient, by hand. A method that is no coroutine is called in the caller's
thread, so it must be safe there. RESULTS has the objects that work only in the loop, and what a
synchronous program gets instead.
"""

import ast
import builtins
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDER = "tandemlog/sync/generated"


@dataclass(frozen=True)
class Result:
    """`annotation` is what a synchronous method returns: `function` makes it of the clients' thread
    and of what the method for asyncio returned."""

    annotation: str
    function: str


CLIENTS = {
    "AsyncAdmin": "tandemlog/admin.py",
    "AsyncConsumer": "tandemlog/consume/consumer.py",
    "AsyncWorkAdmin": "tandemlog/consume/work/work_admin.py",
}
RESULTS = {
    "AsyncStream": Result("Stream", "Stream"),
    "AsyncWork": Result("Work", "Work"),
    "AsyncScan": Result('"pa.RecordBatchReader"', "reader_of"),
}
OMITTED = ("open",)  # a synchronous client is open from the start
BASE = {
    "loop_thread": ("SyncClient",),
    "sync_stream": ("Stream", "reader_of"),
    "sync_work": ("Work",),
}
"""What is written by hand, by its module in tandemlog.sync."""

WORDS = (
    (r"\bawait ", ""),
    (r"\basync (?=with\b|for\b)", ""),
    (r"\bthe task\b", "the thread"),
    (r"\ban AsyncScan\b", "a pyarrow.RecordBatchReader"),
    (r"\bAsync(?=(Admin|Consumer|Producer|Stream)\b)", ""),
)
"""How a docstring says the same of the synchronous client."""
FOR_ASYNCIO = re.compile(r"\b(?:Async\w+|Awaitable|Coroutine|asyncio)\b")


class CannotGenerateError(Exception):
    """A method has no synchronous counterpart that this script could write."""


def generate(output: Path) -> None:
    """Write the synchronous clients below `output`. Raises CannotGenerateError, and
    CalledProcessError if ruff cannot format them."""
    folder = output / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    for name, source in CLIENTS.items():
        text = synchronous((ROOT / source).read_text(), source, name)
        text = _ruff("check", "--select=I", "--fix-only", text=text)
        path = folder / f"{_file_name(name)}.py"
        path.write_text(_ruff("format", text=text))


def _file_name(client: str) -> str:
    """AsyncWorkAdmin: work_admin."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", client.removeprefix("Async")).lower()


def _ruff(*command: str, text: str) -> str:
    """What ruff makes of a module's text, by the rules of this repository."""
    return subprocess.run(
        [sys.executable, "-m", "ruff", *command, "--quiet", "--stdin-filename=generated.py", "-"],
        input=text,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        cwd=ROOT,
    ).stdout


def synchronous(source: str, path: str, name: str) -> str:
    """The module with the synchronous client of the class `name` in `source`, before it is
    formatted. `path` is that of `source` in the repository. Raises CannotGenerateError."""
    tree = ast.parse(source)
    [client] = [each for each in tree.body if isinstance(each, ast.ClassDef) and each.name == name]
    text = "\n\n".join(_class(client, source))
    head = (
        f'"""Generated from {name} ({path}) by `make sync`. Do not edit.\n\n'
        "Each call runs in the clients' loop (loop_thread.py); the caller's thread waits for it.\n"
        '"""'
    )
    return "\n\n".join([head, *_imports(ast.parse(text), tree, path, name), text]) + "\n"


def _class(client: ast.ClassDef, source: str) -> Iterator[str]:
    """Its head, then its methods."""
    name = client.name.removeprefix("Async")
    yield f"class {name}(SyncClient[{client.name}]):\n    {_docstring(client, source)}"
    for each in client.body:
        if isinstance(each, ast.Expr):
            continue  # the docstring
        if not isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef) or each.decorator_list:
            raise CannotGenerateError(f"{client.name}, line {each.lineno}: only methods are known")
        if each.name == "__init__":
            yield _constructor(each, client.name)
        elif each.name == "close":
            yield _method(each, source, ["super().close()"])
        elif not each.name.startswith("_") and each.name not in OMITTED:
            yield _method(each, source, _call(each))


def _constructor(function: ast.FunctionDef | ast.AsyncFunctionDef, client: str) -> str:
    """Makes the client for asyncio, and has its public attributes."""
    lines = [f"super().__init__({client}({_passed(function)}))"]
    for node in ast.walk(function):
        match node:
            case ast.Attribute(ast.Name("self"), attribute, ast.Store()):
                if not attribute.startswith("_"):
                    lines.append(f"self.{attribute} = self._client.{attribute}")
    return _method(function, "", lines)


def _call(function: ast.FunctionDef | ast.AsyncFunctionDef) -> list[str]:
    call = f"self._client.{function.name}({_passed(function)})"
    if isinstance(function, ast.AsyncFunctionDef):
        call = f"self._thread.run({call})"
    result = RESULTS.get(ast.unparse(function.returns)) if function.returns else None
    if result is not None:
        call = f"{result.function}(self._thread, {call})"
    returns_nothing = isinstance(function.returns, ast.Constant) and function.returns.value is None
    return [call if returns_nothing else f"return {call}"]


def _passed(function: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    """The arguments of a call that passes on those of `function`."""
    arguments = function.args
    if arguments.vararg or arguments.kwarg:
        raise CannotGenerateError(f"{function.name}: *arguments are not known")
    positional = [each.arg for each in (*arguments.posonlyargs, *arguments.args)][1:]
    return ", ".join([*positional, *(f"{each.arg}={each.arg}" for each in arguments.kwonlyargs)])


def _method(function: ast.FunctionDef | ast.AsyncFunctionDef, source: str, body: list[str]) -> str:
    returns = ast.unparse(function.returns) if function.returns else "None"
    if returns in RESULTS:
        returns = RESULTS[returns].annotation
    head = f"({ast.unparse(function.args)}) -> {returns}"
    if found := FOR_ASYNCIO.search(head):
        raise CannotGenerateError(
            f"{function.name}: a synchronous program cannot use {found[0]}; RESULTS has what it "
            "gets instead of an object"
        )
    lines = [f"    def {function.name}{head}:"]
    if ast.get_docstring(function):
        lines.append(_docstring(function, source))
    return "\n        ".join([*lines, *body])


def _docstring(node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef, source: str) -> str:
    """As it is written there, quotes and indentation included, in the words of threads."""
    text = ast.get_source_segment(source, node.body[0])
    if text is None or ast.get_docstring(node) is None:
        raise CannotGenerateError(f"{node.name} has no docstring")
    for pattern, replacement in WORDS:
        text = re.sub(pattern, replacement, text)
    if found := FOR_ASYNCIO.search(text):
        raise CannotGenerateError(
            f"{node.name}: its docstring speaks of {found[0]}, which a synchronous program does "
            "not have; say it for both, or give WORDS the other word"
        )
    return text


def _imports(generated: ast.Module, tree: ast.Module, path: str, name: str) -> Iterator[str]:
    """What the generated code uses: as the module at `path` has it, and what is by hand."""
    module = path.removesuffix(".py").replace("/", ".")
    homes = dict(_homes(tree, module))
    homes |= {each: f"..{part}" for part, names in BASE.items() for each in names}
    used = set(_names(generated)) - set(dir(builtins)) - _bound(generated)
    lines = []
    if "pa" in used:
        used.remove("pa")
        yield "from typing import TYPE_CHECKING"
        lines = ["if TYPE_CHECKING:\n    import pyarrow as pa"]
    for each in sorted(used):
        if each not in homes:
            raise CannotGenerateError(f"{name}: nothing in {path} imports {each}")
        yield f"from {homes[each]} import {each}"
    yield from lines


def _homes(tree: ast.Module, module: str) -> Iterator[tuple[str, str]]:
    """Each name of a module's top level, and from where tandemlog.sync.generated imports it."""
    for node in tree.body:
        if isinstance(node, ast.ImportFrom):
            home = node.module or ""
            if node.level:
                package = module.split(".")[1 : -node.level]
                home = f"...{'.'.join([*package, home])}"
            yield from ((alias.asname or alias.name, home) for alias in node.names)
        elif isinstance(node, ast.ClassDef | ast.FunctionDef):
            yield node.name, f"...{module.partition('.')[2]}"


def _names(tree: ast.AST) -> Iterator[str]:
    """The names that are read in `tree`, in annotations between quotes too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.arg | ast.FunctionDef):
            annotation = node.annotation if isinstance(node, ast.arg) else node.returns
            if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
                yield from _names(ast.parse(annotation.value, mode="eval"))


def _bound(tree: ast.AST) -> set[str]:
    """The names that `tree` gives: to its classes and parameters."""
    return {
        node.arg if isinstance(node, ast.arg) else node.name
        for node in ast.walk(tree)
        if isinstance(node, ast.arg | ast.ClassDef)
    }


if __name__ == "__main__":
    generate(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT)
