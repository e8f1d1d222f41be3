"""Which program a peer runs, and whether the two can work together.

    slave                                   master
      Hello.build: version, features, needs ──▶  misfit? ──▶ Refusal that names version and feature
      misfit? ──▶ disconnect        ◀──  Answer.build

Two nodes of different versions meet in every rolling upgrade. They do not compare versions: each
says by name what it can do and what it needs of the other. A node of 0.1 says nothing, and
unknown fields do not disturb it; it can do what BASELINE lists.

Invariant: a feature that a version has sent is never renamed. To use something new that the peer
has to understand, add a feature, and use it where the peer has it; add it to NEEDS only if there is
no other way, one version after the one that brought it (docs/upgrading.md).
"""

from dataclasses import dataclass

VERSION = "0.2.0"
"""Of this program. The package is built with it, and scripts/release.py writes it."""

SILENT = "0.1 or older"
"""How a peer is called that does not say its version."""

FEATURES: dict[str, str] = {
    "epoch-tables": "0.1.0",
    "checksums": "0.1.0",
    "chunk-crc": "0.1.0",
    "table-pieces": "0.1.0",
    "prologue": "0.1.0",
    "known-nodes": "0.1.0",
    "builds": "0.2.0",
    "rounds": "0.2.0",
}
"""Name -> the version that brought it.

epoch-tables  the equal part of two logs is found by their epochs
checksums     ... and by checksums, for a log without such a table
chunk-crc     every chunk carries the CRC of its bytes
table-pieces  topics, groups and consumer offsets come in pieces
prologue      what came before the begin of a shortened log can be sent
known-nodes   a slave is told who has been in the in-sync set
builds        nodes say their version, their features and what they need
rounds        a slave answers at once whether it still follows this term (ha/master/rounds.py), and
              a master's answers to clients carry its epoch
"""

ROUNDS = "rounds"

BASELINE = frozenset(name for name, since in FEATURES.items() if since == "0.1.0")
"""What a peer can do that says nothing."""

MAX_NAMES = 256
"""Of features, or of needs, in one message."""


@dataclass(frozen=True, slots=True)
class Build:
    """One program. The default is a peer that said nothing."""

    version: str = ""
    features: frozenset[str] = BASELINE
    needs: frozenset[str] = frozenset()

    @property
    def named(self) -> str:
        """Its version, for people."""
        return self.version or SILENT


SILENT_PEER = Build()
OURS = Build(VERSION, frozenset(FEATURES), BASELINE)


def misfit(peer: str, theirs: Build, me: str, mine: Build) -> str:
    """Why the two cannot work together, with the way out; empty if they can. `peer` and `me` name
    the nodes."""
    if lacking := sorted(mine.needs - theirs.features):
        return _lacks(peer, theirs, me, mine, lacking)
    if lacking := sorted(theirs.needs - mine.features):
        return _lacks(me, mine, peer, theirs, lacking)
    return ""


def _lacks(old: str, has: Build, new: str, wants: Build, lacking: list[str]) -> str:
    names = ", ".join(lacking)
    return (
        f"{old} runs version {has.named} and cannot do what {new} (version {wants.named}) needs: "
        f"{names}. Upgrade {old}, or go back with {new}: docs/upgrading.md has the order"
    )
