"""How long this store has had something, by the time that its node has seen pass.

    runs          ├── 5 h ──┤        stopped        ├── 2 h ──┤
    seen time     0 ······· 5 h                     5 h ····· 7 h       age = seen now - seen first
    a log file          ↑ first seen full at 1 h                        here: 6 h

    tandemlog/seen-time.json, checked JSON: seen_ms, steady_from_ms, wall_ms, first_seen {name: ms}

The wall clock cannot tell an age: one that is four days ahead would make new messages four days
old, whether it jumped while the node runs or was wrong at its start. The monotonic clock cannot
tell it over a restart. So the time is counted while the node runs. It never runs too fast: whatever
the clocks do, and if this file is lost, things are kept longer.

`steady_from_ms` is the seen time since which the wall clock has not jumped: what is aged by the
times of records (producers) must wait until it was steady for as long.
"""

from collections.abc import Iterable
from pathlib import Path

from ..clock import JUMP_MS, SteadyClock
from ..disk.checked_json import decode_checked, encode_checked
from ..disk.file_system import FileSystem
from ..disk.small_files import read_small, write_small

VERSION = 1
SAVE_INTERVAL_S = 60.0
LONGEST_STOP_MS = 24 * 3_600_000
"""If the clock moved further than this over a stop, an operator may have set it meanwhile."""


class SeenTime:
    """See the module. One thread at a time."""

    def __init__(self, path: Path, files: FileSystem, clock: SteadyClock) -> None:
        self.path = path
        self._files = files
        self._clock = clock
        self._began = clock.elapsed()
        self._before_ms = 0
        self._steady_from_ms = 0
        self._first_seen: dict[str, int] = {}
        self._saved_at = float("-inf")

    def load(self) -> None:
        """A file that is missing or damaged means that everything is first seen now."""
        data = read_small(self._files, self.path)
        if data is None:
            return
        try:
            document = decode_checked(data)
            first_seen = {str(name): int(ms) for name, ms in document["first_seen"].items()}
            before, steady = int(document["seen_ms"]), int(document["steady_from_ms"])
            moved = self._clock.now_ms() - int(document["wall_ms"])
        except (ValueError, KeyError, TypeError, AttributeError):
            return
        self._before_ms, self._first_seen = before, first_seen
        self._steady_from_ms = steady if -JUMP_MS <= moved <= LONGEST_STOP_MS else before

    @property
    def now_ms(self) -> int:
        """How long nodes have had this store open, in ms."""
        return self._before_ms + self._ms_since(self._began)

    @property
    def steady_ms(self) -> int:
        """For how long of that the wall clock has not jumped."""
        if self._clock.jump is not None:
            return 0
        accepted = self._clock.accepted_at
        since = self.now_ms - self._steady_from_ms
        return since if accepted is None else min(since, self._ms_since(accepted))

    def update(self, names: Iterable[str]) -> None:
        """Set all `names` that exist; new ones are first seen now. Saved at once if that changed
        anything, and once a minute. Raises OSError."""
        now = self.now_ms
        seen = {name: min(self._first_seen.get(name, now), now) for name in names}
        changed, self._first_seen = seen != self._first_seen, seen
        if changed or self._clock.elapsed() - self._saved_at >= SAVE_INTERVAL_S:
            self.save()

    def age_ms(self, name: str) -> int:
        """How long ago `name` was first seen; 0 if never."""
        first = self._first_seen.get(name)
        return 0 if first is None else max(0, self.now_ms - first)

    def save(self) -> None:
        """Raises OSError."""
        now = self.now_ms
        document = {
            "version": VERSION,
            "seen_ms": now,
            "steady_from_ms": now - self.steady_ms,
            "wall_ms": self._clock.now_ms(),
            "first_seen": self._first_seen,
        }
        write_small(self._files, self.path, encode_checked(document))
        self._saved_at = self._clock.elapsed()

    def _ms_since(self, monotonic: float) -> int:
        return max(0, round((self._clock.elapsed() - monotonic) * 1000))
