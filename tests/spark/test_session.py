"""What a session is told of the machine that it runs on."""

import os

import pytest

from tandemlog.spark.session import Profile, profile_of, settings

JAVA = "spark.driver.extraJavaOptions"
CHECKPOINTS = "spark.sql.streaming.checkpointFileManagerClass"


def test_only_on_one_machine_a_stream_is_kept_without_links() -> None:
    """Elsewhere its folder may be one whose rename is not atomic in that way."""
    assert settings(Profile.LOCAL)[CHECKPOINTS].endswith(".FileSystemBasedCheckpointFileManager")
    assert CHECKPOINTS not in settings(Profile.CLUSTER)


@pytest.mark.parametrize(
    ("master", "profile"),
    [
        ("local", Profile.LOCAL),
        ("local[*]", Profile.LOCAL),
        ("local[2,4]", Profile.LOCAL),
        ("local-cluster[2,1,1024]", Profile.LOCAL),
        ("spark://h:7077", Profile.CLUSTER),
        ("spark://a:7077,b:7077", Profile.CLUSTER),
        ("yarn", Profile.CLUSTER),
        ("k8s://https://h:6443", Profile.CLUSTER),
        ("sc://h:15002", Profile.CLUSTER),
    ],
)
def test_the_master_says_where_executors_are(master: str, profile: Profile) -> None:
    assert profile_of(master) is profile


def test_executors_elsewhere_can_reach_the_driver() -> None:
    """Spark itself then takes the address of the machine, not of loopback."""
    assert "spark.driver.host" not in settings(Profile.CLUSTER)
    assert "spark.driver.bindAddress" not in settings(Profile.CLUSTER)
    assert settings(Profile.LOCAL)["spark.driver.host"] == "127.0.0.1"


@pytest.mark.parametrize("cores", [1, 2, None])
def test_few_cores_collect_garbage_with_one_thread(
    monkeypatch: pytest.MonkeyPatch, cores: int | None
) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: cores)
    assert "-XX:+UseSerialGC" in settings(Profile.LOCAL)[JAVA].split()
    assert JAVA not in settings(Profile.CLUSTER)


@pytest.mark.parametrize("cores", [1, 2, None])
def test_few_cores_compile_later(monkeypatch: pytest.MonkeyPatch, cores: int | None) -> None:
    """Not where the first compiler is the only one: there these say nothing."""
    monkeypatch.setattr(os, "cpu_count", lambda: cores)
    assert "-XX:Tier4InvocationThreshold=40000" in settings(Profile.LOCAL)[JAVA].split()
    assert "Tier4" not in settings(Profile.TEST)[JAVA]


def test_with_more_java_chooses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 3)
    assert JAVA not in settings(Profile.LOCAL)


@pytest.mark.parametrize("name", ["JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS"])
def test_a_collector_that_the_environment_names_stays(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    monkeypatch.setenv(name, "-Xmx2g -XX:+UseParallelGC")
    assert "GC" not in settings(Profile.LOCAL)[JAVA]
    assert "GC" not in settings(Profile.TEST)[JAVA]
