"""compose/kubernetes: objects that Kubernetes takes, and a node that starts from what they say.

There is no cluster here. The objects are held against Kubernetes' own schemas, their parts against
each other, and a node of this machine gets the settings, variables and secrets that a pod would.
"""

import os
import re
import ssl
import subprocess
import sys
import tomllib
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from helpers import borrowed_disk
from helpers.running import ROOT, free_ports, wait_until
from tandemlog_server.node.http.health import PATHS
from tandemlog_server.node.settings.node_config import NodeConfig

FOLDER = ROOT / "compose" / "kubernetes"
VERSIONS = ("1.29", "1.33")


def objects() -> Iterator[tuple[str, dict[str, Any]]]:
    for file in sorted(FOLDER.glob("*.yaml")):
        for each in yaml.safe_load_all(file.read_text()):
            yield f"{file.name}:{each['kind']}/{each['metadata']['name']}", each


OBJECTS = dict(objects())


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", OBJECTS)
def test_kubernetes_takes_it(name: str, version: str) -> None:
    kubernetes_validate.validate(OBJECTS[name], version, strict=True)


def test_a_fault_would_be_found() -> None:
    broken = {**OBJECTS["tandemlog.yaml:StatefulSet/tandemlog"], "spec": {"replicas": "three"}}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(broken, VERSIONS[-1], strict=True)


@pytest.mark.parametrize("name", ["tandemlog", "etcd"])
def test_the_parts_fit_each_other(name: str) -> None:
    spec = OBJECTS[f"{name}.yaml:StatefulSet/{name}"]["spec"]
    budget = OBJECTS[f"{name}.yaml:PodDisruptionBudget/{name}"]["spec"]
    service = OBJECTS[f"{name}.yaml:Service/{spec['serviceName']}"]["spec"]
    labels = spec["template"]["metadata"]["labels"]
    assert labels == spec["selector"]["matchLabels"] == budget["selector"]["matchLabels"]
    assert labels == service["selector"]
    assert (service["clusterIP"], budget["maxUnavailable"]) == ("None", 1)
    [container] = spec["template"]["spec"]["containers"]
    volumes = {each["name"] for each in spec["template"]["spec"]["volumes"]}
    volumes |= {each["metadata"]["name"] for each in spec["volumeClaimTemplates"]}
    assert {each["name"] for each in container["volumeMounts"]} == volumes


def pod(ordinal: int) -> tuple[dict[str, Any], dict[str, Any], dict[str, str]]:
    """Its container, the settings in its file, and its variables as Kubernetes resolves them."""
    workload = OBJECTS["tandemlog.yaml:StatefulSet/tandemlog"]
    [container] = workload["spec"]["template"]["spec"]["containers"]
    fields = {
        "metadata.name": f"{workload['metadata']['name']}-{ordinal}",
        "metadata.namespace": "default",
        "status.podIP": "127.0.0.1",
    }
    variables: dict[str, str] = {}
    for each in container["env"]:
        value = each.get("value") or fields[each["valueFrom"]["fieldRef"]["fieldPath"]]
        variables[each["name"]] = re.sub(r"\$\((\w+)\)", lambda m: variables[m[1]], value)
    text = OBJECTS["tandemlog.yaml:ConfigMap/tandemlog-settings"]["data"]["node.toml"]
    return container, tomllib.loads(text), variables


def test_what_a_pod_is_told_fits_what_is_around_it() -> None:
    workload = OBJECTS["tandemlog.yaml:StatefulSet/tandemlog"]["spec"]
    container, settings, _ = pod(0)
    names = [pod(number)[2]["TANDEMLOG_NODE_ID"] for number in range(workload["replicas"])]
    assert settings["coordinator"]["members"] == names
    assert settings["replication"]["min_in_sync"] == workload["replicas"] - 1
    ports = {each["name"]: each["containerPort"] for each in container["ports"]}
    assert settings["listen"].endswith(f":{ports['grpc']}")
    assert settings["http_listen"].endswith(f":{ports['http']}")
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        assert container[probe]["httpGet"]["path"] in PATHS
        assert container[probe]["httpGet"]["port"] == "http"
    grace_s = workload["template"]["spec"]["terminationGracePeriodSeconds"]
    assert grace_s * 1000 > 2 * NodeConfig.model_fields["stop_timeout_ms"].default
    mounts = {each["mountPath"] for each in container["volumeMounts"]}
    assert {"/data", "/secrets", "/etc/tandemlog"} <= mounts


def program(*arguments: str, **more: Any) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "tandemlog", *arguments],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
        **more,
    )


@pytest.mark.cluster
def test_a_node_starts_from_what_a_pod_is_told(tmp_path: Path) -> None:
    secrets = tmp_path / "secrets"
    _, _, variables = pod(1)
    node_id = variables["TANDEMLOG_NODE_ID"]
    host = variables["TANDEMLOG_ADVERTISE"].removesuffix(":7100")
    program(
        *("certs", "cluster", str(secrets), "--cluster", "shop", "--nodes", f"{node_id}={host}")
    )
    program(
        *("token", "new", node_id, "--access", str(secrets / "access.toml"), "--node", node_id),
        *("--out", str(secrets / f"{node_id}.token")),
    )
    text = OBJECTS["tandemlog.yaml:ConfigMap/tandemlog-settings"]["data"]["node.toml"]
    grpc, http = free_ports(2)
    config = tmp_path / "node.toml"
    # places of this machine in place of the pod's
    for old, new in (
        ("/secrets/", f"{secrets}/"),
        ("/data/", f"{tmp_path}/"),
        (":7100", f":{grpc}"),
        (":7180", f":{http}"),
    ):
        assert old in text
        text = text.replace(old, new)
    config.write_text(text)
    environment = {k: v for k, v in os.environ.items() if not k.startswith("TANDEMLOG_")}
    environment |= borrowed_disk.ENVIRONMENT | {
        name: value.replace("/secrets/", f"{secrets}/") for name, value in variables.items()
    }
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "tandemlog", "node", "--config", str(config)],
            cwd=ROOT,
            env=environment,
            stdout=log,
            stderr=log,
        )

    def status(path: str) -> int:
        """As a probe asks: over TLS, without a token, whoever's certificate it is."""
        unproven = ssl._create_unverified_context()
        try:
            url = f"https://127.0.0.1:{http}{path}"
            with urllib.request.urlopen(url, timeout=2, context=unproven) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            return error.code
        except OSError:
            assert process.poll() is None, (tmp_path / "log").read_text()
            return 0

    try:
        wait_until("the node to live", lambda: status("/liveness") == 200, 90)
        # alone, it is not in sync; and only health is open
        answers = {"/in-sync": 503, "/metrics": 401}
        for path, code in answers.items():
            found: list[int] = []

            def answered(path: str = path, found: list[int] = found) -> bool:
                found[:] = [status(path)]  # 0: it did not answer in time
                return found != [0]

            wait_until(f"an answer at {path}", answered)
            assert found == [code], path
        process.terminate()
        assert process.wait(90) == 0, (tmp_path / "log").read_text()
    finally:
        process.kill()
        process.wait()
