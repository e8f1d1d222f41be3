"""An archiver and an object store that does what it is asked: for tests of the archiver alone."""

from tandemlog.format.archive.manifest import Manifest, SegmentEntry, StateEntry, encode_manifest
from tandemlog.format.archive.object_name import ManifestName, SegmentName, StateName, digest_of
from tandemlog.format.files.log_history import LogHistory, LogTerm
from tandemlog_server.storage.archiving.actions import (
    Action,
    Answer,
    ArchiverConfig,
    Delete,
    Deleted,
    LogView,
    Look,
    Looked,
    Prove,
    Proved,
    Publish,
    Published,
    StateTaken,
    TakeState,
    Upload,
    Uploaded,
    Wait,
)
from tandemlog_server.storage.archiving.archiver import Archiver

CONFIG = ArchiverConfig(segment_bytes=400)
FILE = 1_000
DIGEST = digest_of(b"")
HISTORY = LogHistory(7, (LogTerm(1, 0, 11), LogTerm(4, 700, 14)))
VIEW = LogView(HISTORY, 0, 300, FILE, tables=(1,))


def segment(start: int, end: int, term_id: int = 11) -> SegmentEntry:
    return SegmentEntry(SegmentName(start, end, term_id, DIGEST), end)


class Driven:
    """An archiver whose object store does what it is asked, unless a test answers itself."""

    def __init__(self, view: LogView = VIEW, config: ArchiverConfig = CONFIG) -> None:
        self.archiver = Archiver("a", config, lambda: 5)
        self.view = view
        self.now = 0.0
        self.manifests: list[tuple[ManifestName, Manifest]] = []
        self.done: list[Action] = []

    def next(self, *, hurry: bool = False) -> Action:
        return self.archiver.next(self.view, self.now, hurry=hurry)

    def answer(self, answer: Answer) -> None:
        self.archiver.answer(answer, self.now)

    def good(self, action: Action) -> Answer:
        match action:
            case Look():
                newest = max(self.manifests, default=None, key=lambda each: each[0])
                return Looked(newest, tuple(name for name, _ in self.manifests))
            case Prove():
                return Proved(True)
            case Upload():
                return Uploaded(segment(action.start, action.limit, action.term_id))
            case TakeState():
                number = len(self.done)
                state = StateName(action.log_offset, digest_of(b"%d" % number))
                return StateTaken(StateEntry(state, number, action.prologue), self.view.tables)
            case Publish():
                name, _ = encode_manifest(action.manifest)
                self.manifests.append((name, action.manifest))
                return Published(name)
            case Delete():
                return Deleted()
        raise AssertionError(action)

    def run(self, *, hurry: bool = False) -> list[Action]:
        """Until it waits; what it did."""
        done: list[Action] = []
        while not isinstance(action := self.next(hurry=hurry), Wait):
            assert len(done) < 100
            done.append(action)
            self.done.append(action)
            self.answer(self.good(action))
        return done

    @property
    def newest(self) -> Manifest:
        return max(self.manifests, key=lambda each: each[0])[1]


def kinds(actions: list[Action]) -> list[str]:
    return [type(each).__name__ for each in actions]
