"""The cluster of compose/compose.yaml as a compose project of its own.

`docker exec` in a helper's container takes the place of `docker-compose run`, which takes seconds:
the helper is the service `cli`, kept alive.
"""

import contextlib
import json
import os
import shutil
import ssl
import subprocess
import urllib.request
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from helpers.running import ROOT, wait_until

COMPOSE = ROOT / "compose"
NODES = ("n0", "n1", "n2")
SETTLE_S = 90.0
# a client that checks certificates is the program; this one asks by addresses
UNPROVEN = ssl._create_unverified_context()
PORTS = [f"TANDEMLOG_{kind}_N{number}" for kind in ("PORT", "HTTP_PORT") for number in range(3)]


def docker(*words: str) -> str:
    """What it says on stdout. AssertionError if it fails."""
    done = subprocess.run(
        ["docker", *words], capture_output=True, text=True, check=False, timeout=180
    )
    assert done.returncode == 0, f"docker {' '.join(words)}: {done.stderr}"
    return done.stdout


class Composed:
    """See the module. `image` is the one that new containers get."""

    def __init__(self, image: str, project: str) -> None:
        self.image = image
        self.project = project
        self.started_s = 0.0
        self._program = (
            ["docker-compose"] if shutil.which("docker-compose") else ["docker", "compose"]
        )

    @property
    def environment(self) -> Mapping[str, str]:
        return {
            **os.environ,
            "DOCKER_BUILDKIT": "0",
            "COMPOSE_PROJECT_NAME": self.project,
            "TANDEMLOG_BASE": "tandemlog-base:bookworm",
            "TANDEMLOG_IMAGE": self.image,
            "TANDEMLOG_ETCD_IMAGE": f"{self.project}-etcd",
            "TANDEMLOG_JAVA_IMAGE": f"{self.project}-java",
            "TANDEMLOG_LOG_FILE_SIZE": str(16 << 20),
            **dict.fromkeys(PORTS, "0"),
        }

    def compose(self, *words: str, timeout_s: float = 180) -> str:
        return self._ran([*self._program, *words], timeout_s=timeout_s)

    def bash(self, script: str, cwd: Path = COMPOSE) -> str:
        """Commands of a page, one after the other, until one fails."""
        if self._program[0] != "docker-compose":
            script = script.replace("docker-compose ", "docker compose ")
        return self._ran(["bash", "-euxo", "pipefail", "-c", script], cwd, timeout_s=300)

    def _ran(self, command: list[str], cwd: Path = COMPOSE, timeout_s: float = 180) -> str:
        done = subprocess.run(
            command,
            cwd=cwd,
            capture_output=True,
            text=True,
            check=False,
            env=self.environment,
            timeout=timeout_s,
        )
        said = done.stdout + done.stderr
        assert done.returncode == 0, f"{command}: {done.returncode}\n{said}"
        return said

    def container(self, service: str) -> str:
        """The id of its container, also of one that has ended."""
        labels = {"project": self.project, "service": service, "oneoff": "False"}
        filters = [f"--filter=label=com.docker.compose.{k}={v}" for k, v in labels.items()]
        found = docker("ps", "--all", "--quiet", *filters).split()
        assert len(found) == 1, f"{service} has the containers {found}"
        return found[0]

    @cached_property
    def _helper(self) -> str:
        name = f"{self.project}-helper"
        subprocess.run(["docker", "rm", "-f", name], capture_output=True, check=False)
        self.compose(*("run", "-d", "--name", name, "--entrypoint", "sleep", "cli"), "infinity")
        return name

    def tandemlog(self, *words: str) -> str:
        """The program inside the network, with the operator's token."""
        return docker("exec", self._helper, "tandemlog", *words)

    def rows(self, *words: str) -> list[dict[str, Any]]:
        said = self.tandemlog(*words, "--format", "jsonl")
        return [json.loads(line) for line in said.splitlines() if line.strip()]

    def address(self, service: str) -> str:
        """Of its container in the network; empty while it is cut off."""
        networks = "{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}"
        return docker("inspect", "--format", networks, self.container(service)).strip()

    def nodes(self) -> dict[str, dict[str, Any]]:
        """What each node that answers says of itself, by its health check, which needs no token."""
        found = {}
        for name in NODES:
            with contextlib.suppress(OSError):
                url = f"https://{self.address(name)}:7180/liveness"
                with urllib.request.urlopen(url, timeout=1, context=UNPROVEN) as answer:
                    found[name] = json.load(answer)
        return found

    def master(self, other_than: str = "") -> str:
        """The node that leads, once there is one."""
        found: list[str] = []

        def there() -> bool:
            leading = [n for n, row in self.nodes().items() if row["role"] == "master"]
            found[:] = [name for name in leading if name != other_than]
            return bool(found)

        wait_until("a master", there, SETTLE_S)
        return found[0]

    def wait_in_sync(self, count: int = 3) -> None:
        def settled() -> bool:
            states = [row["in_sync"] for row in self.nodes().values()]
            return states.count(True) >= count

        wait_until(f"{count} nodes in sync", settled, SETTLE_S)
