"""Programs that use the client may start other programs."""

import os
import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).resolve().parent.parent


def run(code: list[str], **environment: str) -> str:
    """What a fresh interpreter prints, without what this one has set for gRPC."""
    inherited = {k: v for k, v in os.environ.items() if k != "GRPC_ENABLE_FORK_SUPPORT"}
    answer = subprocess.run(
        [sys.executable, *code],
        env=inherited | {"PYTHONPATH": str(TESTS.parent)} | environment,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=120,
    )
    return answer.stdout


def test_children_live_though_grpc_is_at_work() -> None:
    """Without the setting every tenth child of this program dies of SIGABRT before its exec."""
    assert run([str(TESTS / "fakes" / "forking.py")]) == ""


def test_who_wants_forks_of_grpc_itself_keeps_them() -> None:
    told = "import os, tandemlog; print(os.environ['GRPC_ENABLE_FORK_SUPPORT'])"
    assert run(["-c", told]) == "0\n"
    assert run(["-c", told], GRPC_ENABLE_FORK_SUPPORT="1") == "1\n"


def test_a_fork_of_a_process_that_opened_no_channel_needs_no_copy() -> None:
    code = [
        "import os, sys, tandemlog",
        "from tandemlog import Admin, Consumer, Producer",
        "from tandemlog.transport import own_grpc",
        "assert 'grpc' not in sys.modules",
        "if os.fork() == 0:",
        "    own_grpc.ready()",
        "    print(own_grpc.grpc is sys.modules['grpc'], own_grpc.aio is sys.modules['grpc.aio'])",
        "    sys.stdout.flush()",
        "    os._exit(0)",
        "os.wait()",
    ]
    assert run(["-c", "\n".join(code)]).split() == ["True", "True"]
