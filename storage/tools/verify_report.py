"""What verify has looked at and what it has found: a fault names its file and a position."""

from dataclasses import dataclass, field

MAX_FAULTS = 100


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that is not as it must be: in `file`, about the log offset or the queue offset
    or the entry number `position`."""

    file: str
    position: int
    reason: str

    def __str__(self) -> str:
        return f"{self.file}: {self.reason}"


@dataclass(slots=True)
class VerifyReport:
    """What was looked at and what was found; `faults` are the first ones, the log's before those
    of what is derived from it. `light_queues` are those that the log names in a store that has
    none: its broker did not keep them. `finished` False: what was found ended the check.
    `log_is_whole` False: the log itself has a fault, does not end in zeros, or has a queue that
    began again."""

    log_start: int = 0
    log_end: int = 0
    records: int = 0
    units: int = 0
    index_entries: int = 0
    index_files: int = 0
    indexes_tags: bool = True
    finished: bool = True
    log_is_whole: bool = True
    light_queues: set[str] = field(default_factory=set)
    notes: list[str] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)

    @property
    def holds(self) -> bool:
        return not self.faults

    def add(self, fault: Fault) -> None:
        if len(self.faults) < MAX_FAULTS:
            self.faults.append(fault)
