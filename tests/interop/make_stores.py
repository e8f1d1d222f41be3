"""Make the small stores of tests/data with a real broker, and what RocketMQ reads from them.

usage: ROCKETMQ_VERSION=5.5.0 python -m interop.make_stores tests/data   (PYTHONPATH=tests)

Writes rocketmq-VERSION-{clean,killed}.tar.xz: store/, expected/{messages,queues,index}.jsonl,
client.jsonl and store.json, in the form that tests/golden.py reads.
"""

import json
import sys
import tarfile
import tempfile
import time
from pathlib import Path
from typing import Any

from interop.rocketmq import VERSION, StoreClient, StoreSizes, dump, served, write_topics

SIZES = StoreSizes(
    commit_log_file_size=65_536, queue_file_size=2_000, index_slots=100, index_entries=400
)
TOPICS = {"Orders": 3, "Audit-1": 1}


def observe(client: StoreClient) -> list[dict[str, Any]]:
    """What RocketMQ's client sees of the running broker, a row a question."""
    rows: list[dict[str, Any]] = []
    for topic, queues in TOPICS.items():
        keys: set[str] = set()
        for queue_id in range(queues):
            place = {"topic": topic, "queue_id": queue_id}
            limits = client.call("range", topic, queue_id)
            rows.append(
                {"kind": "range", **place, "min_offset": limits["min"], "max_offset": limits["max"]}
            )
            messages = client.call("pull", topic, queue_id)["messages"]
            rows += [{"kind": "message", **message} for message in messages]
            for message in messages:
                keys.update(each for each in (message.get("keys") or "").split(" ") if each)
            for message in messages[:: max(1, len(messages) // 5)]:
                for time_ms in (message["store_timestamp"] - 1, message["store_timestamp"]):
                    found = client.call("search", topic, queue_id, time_ms)
                    rows += [
                        {
                            "kind": "search_offset",
                            **place,
                            "timestamp": time_ms,
                            "boundary": boundary,
                            "offset": found[boundary],
                        }
                        for boundary in ("lower", "upper")
                    ]
        for key in sorted(keys)[:8]:
            found = client.call("key", topic, key)["messages"]
            offsets = sorted(each["physical_offset"] for each in found)
            rows.append(
                {"kind": "query_key", "topic": topic, "key": key, "physical_offsets": offsets}
            )
    return rows


def pack(folder: Path, archive: Path) -> None:
    with tarfile.open(archive, "w:xz", preset=9) as tar:
        for path in sorted(folder.rglob("*")):
            info = tar.gettarinfo(str(path), str(path.relative_to(folder)))
            info.uid = info.gid = 0
            info.uname = info.gname = ""
            if path.is_file():
                with path.open("rb") as data:
                    tar.addfile(info, data)
            else:
                tar.addfile(info)


def make(kind: str, out: Path) -> None:
    """One store: `clean` is stopped by SIGTERM, `killed` by SIGKILL right after the last send."""
    with tempfile.TemporaryDirectory() as work:
        home, folder = Path(work) / "home", Path(work) / "golden"
        store = folder / "store"
        write_topics(store, TOPICS)
        observed: list[dict[str, Any]] = []
        with served(store, SIZES, home, "Orders") as (broker, client):
            for seed, (topic, queues) in enumerate(TOPICS.items()):
                client.call("fill", topic, queues, 300 if kind == "clean" else 200, seed)
            if kind == "killed":
                broker.kill()
            else:
                time.sleep(2)  # the delayed messages come after their second
                observed = observe(client)
        expected = folder / "expected"
        expected.mkdir()
        for what in ("messages", "queues", "index"):
            rows = dump(store, what, home / "dump", SIZES.index_slots)
            text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
            (expected / f"{what}.jsonl").write_text(text)
        (folder / "client.jsonl").write_text(
            "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in observed)
        )
        sizes = {
            name: getattr(SIZES, name)
            for name in ("commit_log_file_size", "queue_file_size", "index_slots", "index_entries")
        }
        (folder / "store.json").write_text(json.dumps(sizes) + "\n")
        for name in ("rocksdbstore", "compaction"):
            for path in sorted((store / name).rglob("*"), reverse=True):
                path.rmdir() if path.is_dir() else path.unlink()
            if (store / name).is_dir():
                (store / name).rmdir()
        pack(folder, out / f"rocketmq-{VERSION}-{kind}.tar.xz")


if __name__ == "__main__":
    target = Path(sys.argv[1])
    target.mkdir(parents=True, exist_ok=True)
    for each in sys.argv[2:] or ("clean", "killed"):
        make(each, target)
