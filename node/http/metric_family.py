"""What a family of metrics is: name, type, labels, unit, meaning.

Each family has the labels `cluster` and `node` before its own. Names end in their unit where they
have one, counters in `_total`.
"""

from dataclasses import dataclass
from enum import Enum

PREFIX = "tandemlog_"
COMMON_LABELS = ("cluster", "node")


class MetricKind(Enum):
    """Prometheus' types, as far as they are used."""

    GAUGE = "gauge"
    COUNTER = "counter"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class Family:
    """`name` is without prefix; `labels` are those beside COMMON_LABELS; `unit` of the value."""

    name: str
    kind: MetricKind
    unit: str
    meaning: str
    labels: tuple[str, ...] = ()

    @property
    def full_name(self) -> str:
        return PREFIX + self.name


@dataclass(frozen=True, slots=True)
class Section:
    """Families that belong together, and what is to be said about all of them."""

    title: str
    introduction: str
    families: tuple[Family, ...]


def gauge(name: str, unit: str, meaning: str, *labels: str) -> Family:
    return Family(name, MetricKind.GAUGE, unit, meaning, labels)


def counter(name: str, unit: str, meaning: str, *labels: str) -> Family:
    return Family(name, MetricKind.COUNTER, unit, meaning, labels)


def histogram(name: str, unit: str, meaning: str, *labels: str) -> Family:
    return Family(name, MetricKind.HISTOGRAM, unit, meaning, labels)
