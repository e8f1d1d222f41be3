"""The layers hold: who may import whom, and pure modules stay pure.

tandemlog.format <- storage <- ha <- rocketmq <- node <- cli
                                                        tandemlog (the client) sees format alone

Inside a package the folders are rooms on floors: FLOORS lists them from the ground up, and a room
imports only from rooms that stand before it. A file at a package's root is a room of its own.
"""

import ast
import re
import subprocess

import pytest

from helpers.source_tree import (
    FOLDERS,
    OWN,
    ROOT,
    imported,
    imports,
    module_name,
    modules,
    parsed,
)

MADE_UP = (
    "worker.py",
    "test_worker.py",
    "copy.py",
    "job.py",
    "tandemlog_kombu.py",
    "tasks.py",
)  # programs of a reader's own in the documents
MAX_LINES = 500
MAX_FUNCTION_LINES = 70  # what the options of a command line need is left out

# Which of our own packages a package may import; the longest matching name counts.
ALLOWED: dict[str, tuple[str, ...]] = {
    "tandemlog.format": ("tandemlog.format",),
    "tandemlog.v1": ("tandemlog.v1",),
    "tandemlog.rocketmq_v2": ("tandemlog.rocketmq_v2",),
    "tandemlog": ("tandemlog",),
    "storage": ("storage", "tandemlog.format"),
    "ha": ("ha", "storage", "tandemlog.format", "tandemlog.transport", "tandemlog.v1"),
    "tandemlog.transport": ("tandemlog.lazy", "tandemlog.transport"),
    "rocketmq": (
        "rocketmq",
        "ha",
        "storage",
        "tandemlog.format",
        "tandemlog.rocketmq_v2",
        "tandemlog.v1",
    ),
    "node": ("node", "rocketmq", "ha", "storage", "tandemlog"),
    "cli": ("cli", "node", "rocketmq", "ha", "storage", "tandemlog"),
    "tandemlog.__main__": ("tandemlog",),
    "tandemlog.logs": ("tandemlog",),
    "tandemlog.spark": ("tandemlog",),
    "tandemlog.testing": ("tandemlog", "node", "ha", "storage"),
}

# From the ground up. A room imports from lower floors and from itself.
FLOORS: dict[str, tuple[tuple[str, ...], ...]] = {
    "storage": (
        (
            "__init__",
            "clock",
            "config",
            "errors",
            "listeners",
            "progress",
            "shares",
            "store_paths",
            "token_bucket",
            "traffic",
        ),
        ("leases", "stats"),
        ("disk_errors", "positions"),
        ("disk",),
        ("folds",),
        ("index", "log", "metadata", "producers", "queues"),
        ("state_files",),
        ("delays", "dispatch", "inspect", "reads", "transactions"),
        ("store_parts",),
        ("scrub",),
        ("cut_positions", "housekeeping", "puts", "recovery", "retention", "topic_changes"),
        ("message_store",),
        ("archiving", "services", "tools"),
    ),
    "ha": (
        ("__init__", "config", "errors", "store_port"),
        ("coordinator", "frame_limits"),
        ("state",),
        ("intake", "protocol", "replication_file"),
        ("master",),
        ("slave",),
        ("election",),
    ),
    "rocketmq": (
        ("__init__", "wire"),
        ("clients", "serve"),
        ("follow", "messaging"),
    ),
    "node": (
        ("__init__", "private_files"),
        ("access", "certs"),
        ("cluster_rows", "error_status", "process", "settings"),
        ("embedded_coordinator", "pulls", "roles", "scrub", "security"),
        ("archive", "groups", "puts", "work"),
        ("groups", "puts", "transactions"),
        ("preflight", "services"),
        ("http", "remoting"),
        ("cluster_membership", "messaging"),
        ("console", "rocketmq_clients"),
        ("http_port",),
        ("rocketmq_messaging",),
        ("node",),
        ("run",),
    ),
    "cli": (
        ("__init__", "output"),
        ("report",),
        ("shared",),
        ("messages",),
        ("cluster", "local"),
        ("top",),
        ("commands",),
        ("app",),
        ("docs_page",),
    ),
    "tandemlog.format": (
        ("__init__", "calls", "constants", "errors", "fast_crc", "java_hash", "words"),
        ("arrays", "protobuf_wire"),
        ("record",),
        ("files",),
        ("columns",),
        ("archive",),
        ("delay", "filter", "lease"),
        ("delay", "filter"),
        ("transaction",),
    ),
    "tandemlog": (
        ("delayed", "in_transaction", "lazy", "put_answer_columns"),
        ("put_answer", "memory", "telemetry", "transport", "turns", "unpacking"),
        ("message",),
        ("errors",),
        ("archive", "arrow", "cluster", "forks", "hooks", "tracing"),
        ("consume", "produce"),
        ("admin",),
        ("sync",),
        ("__init__",),
        ("__main__",),
    ),
    "tandemlog.testing": (
        ("memory_file", "node_clock"),
        ("memory_files",),
        ("node_settings",),
        ("node_group",),
        ("cluster",),
        ("async_cluster",),
        ("__init__",),
        ("pytest_plugin",),
    ),
    "tandemlog.logs": (
        ("__init__", "job_errors"),
        ("executors", "reading", "view_columns"),
        ("audit",),
        ("tasks",),
        ("jobs",),
    ),
    "tandemlog.spark": (
        (
            "__init__",
            "java",
            "newer_spark",
            "python_daemon",
            "spark_schema",
            "spark_version",
        ),
        ("cluster", "session", "table_options"),
        ("sink",),
        ("lag", "live", "segments"),
        ("session_tasks",),
        ("tour",),
    ),
}

# What a package of benchmarks imports from beside itself, where that is not the harness alone.
BENCHMARKS_SHARE: dict[str, tuple[str, ...]] = {
    "harness": (),
    "seeds": ("harness", "peers"),
    "stages": ("harness", "peers"),
}

# Outside packages that a layer must not know.
FORBIDDEN: dict[str, tuple[str, ...]] = {
    "tandemlog.format": ("grpc", "asyncio", "threading", "time", "random", "os", "socket"),
    "storage": ("grpc", "asyncio", "pydantic", "typer", "rich"),
    "tandemlog": ("pydantic", "typer", "rich", "aiohttp", "prometheus_client"),
    "tandemlog.logs": ("pydantic", "pyspark", "typer", "rich", "aiohttp"),
    "tandemlog.spark": ("pydantic", "typer", "rich", "aiohttp"),
}

# Decisions take bytes and `now` and return actions; they own neither a loop nor a clock.
PURE = (
    "node/console/history.py",
    "node/console/room.py",
    "node/console/sessions.py",
    "cli/report/markup.py",
    "cli/report/page.py",
    "cli/report/plots.py",
    "storage/archiving/actions.py",
    "storage/archiving/archiver.py",
    "storage/archiving/pruning.py",
    "storage/scrub/block_check.py",
    "storage/scrub/scrub_plan.py",
    "storage/scrub/verdicts.py",
    "storage/shares.py",
    "storage/token_bucket.py",
    "ha/coordinator/guard.py",
    "ha/coordinator/methods.py",
    "ha/coordinator/rotation.py",
    "ha/coordinator/etcd_messages.py",
    "ha/election/held_lease.py",
    "ha/election/role_loop.py",
    "ha/election/rolled_back.py",
    "ha/election/snapshot.py",
    "ha/election/switchover.py",
    "ha/master/confirm_offset.py",
    "ha/master/master_group.py",
    "ha/master/foreign_slaves.py",
    "ha/master/session.py",
    "ha/master/sync_state_set.py",
    "ha/protocol/chunk_codec.py",
    "ha/protocol/frames.py",
    "ha/protocol/handshake.py",
    "node/messaging/client_sessions.py",
    "rocketmq/clients/client_table.py",
    "rocketmq/clients/queue_locks.py",
    "rocketmq/clients/routes.py",
    "rocketmq/serve/framing.py",
    "rocketmq/serve/session.py",
    "ha/slave/session.py",
    "node/access/access_file.py",
    "node/access/audit_log.py",
    "node/access/caller.py",
    "node/groups/assignor.py",
    "node/groups/consumer_group.py",
    "node/groups/group_rows.py",
    "node/transactions/check_board.py",
    "node/access/certificates.py",
    "node/access/doorkeeper.py",
    "node/access/identities.py",
    "node/access/patterns.py",
    "node/access/usage.py",
    "node/embedded_coordinator/request_checks.py",
    "node/embedded_coordinator/lease_table.py",
    "node/embedded_coordinator/state_machine.py",
    "node/embedded_coordinator/coordinator_refusals.py",
    "node/embedded_coordinator/key_versions.py",
    "node/embedded_coordinator/watchers.py",
    "storage/leases/lease_engine.py",
    "storage/leases/queue_leases.py",
    "storage/log/append_plan.py",
    "storage/queues/queue_search.py",
    "storage/reads/selection.py",
    "storage/retention/policy.py",
    "tandemlog/cluster/belief.py",
    "tandemlog/cluster/topology.py",
    "tandemlog/consume/reading/lost_messages.py",
    "tandemlog/consume/group/group_session.py",
    "tandemlog/consume/work/prefetch.py",
    "tandemlog/consume/reading/span_progress.py",
    "tandemlog/produce/chain.py",
    "tandemlog/spark/live/admission.py",
)
SAYS_PURE = r"\b[Nn]o I/O\b|\bPure\b|\bis pure\b|\bpure arithmetic\b"
IMPURE_MODULES = ("asyncio", "grpc", "time", "random", "threading", "socket", "os")


def within(name: str, packages: tuple[str, ...]) -> bool:
    return any(name == each or name.startswith(f"{each}.") for each in packages)


def rule_for(name: str, rules: dict[str, tuple[str, ...]]) -> tuple[str, ...]:
    matching = [key for key in rules if within(name, (key,))]
    return rules[max(matching, key=len)] if matching else ()


def test_every_import_goes_downward() -> None:
    wrong = []
    for path in modules():
        allowed = rule_for(module_name(path), ALLOWED)
        for name, line in imported(path):
            if within(name, OWN) and allowed and not within(name, allowed):
                # `from tandemlog import format` names the package before the part
                if name == "tandemlog" and any(each.startswith("tandemlog.") for each in allowed):
                    continue
                wrong.append(f"{path.relative_to(ROOT)}:{line} imports {name}")
    assert not wrong, "\n".join(wrong)


def test_a_module_has_one_name() -> None:
    """An import by the folder would load a module a second time, and none in an installation."""
    names = rf"(?:{'|'.join(FOLDERS)})(?:\.[\w.]+)?"
    by_folder = re.compile(rf"^[ \t]*(?:from {names} import .*|import {names})$", re.MULTILINE)
    files = [*modules(), *(ROOT / "tests").rglob("*.py"), *(ROOT / "benchmarks").rglob("*.py")]
    wrong = [
        f"{path.relative_to(ROOT)}: {line}"
        for path in files
        for line in by_folder.findall(path.read_text())
    ]
    assert not wrong, "\n".join(wrong)


def room_of(name: str) -> tuple[str, str] | None:
    """The package with floors that a module belongs to, and its room there."""
    towers = [each for each in FLOORS if within(name, (each,))]
    if not towers:
        return None
    tower = max(towers, key=len)
    return tower, name[len(tower) + 1 :].split(".")[0] or "__init__"


def test_rooms_stand_on_floors() -> None:
    floor_of = {
        (tower, room): number
        for tower, floors in FLOORS.items()
        for number, floor in enumerate(floors)
        for room in floor
    }
    names = {module_name(path) for path in modules()}
    wrong = []
    for path in modules():
        mine = room_of(module_name(path))
        if mine is None:
            continue
        if mine not in floor_of:
            wrong.append(f"{path.relative_to(ROOT)}: {mine[1]} is on no floor of {mine[0]}")
            continue
        for name, line in imported(path):
            theirs = room_of(name) if name in names else None
            if theirs is None or theirs == mine or theirs[0] != mine[0]:
                continue
            if theirs[1] != "__init__" and floor_of.get(theirs, 0) >= floor_of[mine]:
                wrong.append(f"{path.relative_to(ROOT)}:{line} imports {name}: not a lower floor")
    assert not wrong, "\n".join(wrong)


def test_benchmarks_share_the_harness_alone() -> None:
    wrong = []
    for path in sorted((ROOT / "benchmarks").glob("*/**/*.py")):
        own = path.relative_to(ROOT / "benchmarks").parts[0]
        allowed = {own, *BENCHMARKS_SHARE.get(own, ("harness",))}
        for name, line in imports(path):
            root, _, rest = name.partition(".")
            if root == "benchmarks" and rest.split(".")[0] not in allowed:
                wrong.append(f"{path.relative_to(ROOT)}:{line} imports {name}")
    assert not wrong, "\n".join(wrong)


def test_layers_do_not_know_what_is_not_theirs() -> None:
    wrong = []
    for path in modules():
        name = module_name(path)
        forbidden = rule_for(name, FORBIDDEN)
        wrong += [
            f"{path.relative_to(ROOT)}:{line} imports {target}"
            for target, line in imported(path)
            if within(target, forbidden)
        ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("relative", PURE)
def test_decisions_are_pure(relative: str) -> None:
    path = ROOT / relative
    tree = parsed(path)
    impure = [
        f"{name} at line {line}" for name, line in imported(path) if within(name, IMPURE_MODULES)
    ]
    waits = [node.lineno for node in ast.walk(tree) if isinstance(node, ast.AsyncFunctionDef)]
    assert not impure
    assert not waits


def test_who_says_to_be_pure_is_held_to_it() -> None:
    """tandemlog.format is, as a whole: see FORBIDDEN."""
    said = {
        str(path.relative_to(ROOT))
        for path in modules()
        if re.search(SAYS_PURE, ast.get_docstring(parsed(path)) or "")
        and not module_name(path).startswith("tandemlog.format")
    }
    assert said <= set(PURE)


def test_no_cycles_between_modules() -> None:
    graph: dict[str, set[str]] = {}
    names = {module_name(path) for path in modules()}
    for path in modules():
        name = module_name(path)
        targets = {target for target, _ in imported(path)} & names
        # a package's __init__ re-exports its modules; the modules import each other, not it
        graph[name] = targets - {name}
    done: set[str] = set()
    path_now: list[str] = []

    def visit(name: str) -> None:
        if name in path_now:
            raise AssertionError(" -> ".join([*path_now[path_now.index(name) :], name]))
        if name in done:
            return
        path_now.append(name)
        for target in sorted(graph.get(name, ())):
            visit(target)
        path_now.pop()
        done.add(name)

    for name in sorted(graph):
        visit(name)


def test_modules_hold_one_idea() -> None:
    long = {
        str(path.relative_to(ROOT)): lines
        for path in modules()
        if (lines := len(path.read_text().splitlines())) > MAX_LINES
    }
    assert not long, f"modules of more than {MAX_LINES} lines: {long}"


def test_functions_fit_on_a_screen() -> None:
    long = [
        f"{path.relative_to(ROOT)}:{node.lineno} {node.name}: {lines} lines"
        for path in modules()
        if "commands" not in path.relative_to(ROOT).parts
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (lines := (node.end_lineno or 0) - node.lineno + 1) > MAX_FUNCTION_LINES
    ]
    assert not long, "\n".join(long)


def test_files_that_are_named_exist() -> None:
    """In docstrings, comments and documents: `name.py`, or the last part of a path."""
    listed = subprocess.run(
        ["git", "ls-files"], capture_output=True, text=True, check=True, cwd=ROOT
    )
    files = [f"/{each}" for each in listed.stdout.splitlines()]
    texts = [path for path in modules() if path.is_file()]
    texts += [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
    wrong = [
        f"{path.relative_to(ROOT)}:{number} names {name}"
        for path in texts
        for number, line in enumerate(path.read_text().splitlines(), 1)
        for name in re.findall(r"(?<![\w/.-])([\w/]*\w\.py)\b(?!\()", line)
        if name not in MADE_UP and not any(each.endswith(f"/{name}") for each in files)
    ]
    assert not wrong, "\n".join(wrong)
