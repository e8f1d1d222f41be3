"""The numbers that a client and a node must agree on in their calls: see proto/tandemlog/v1.

request   at most MAX_NAMES names, MAX_ROWS rows, …     more are refused: a client asks in parts
member    its epoch, or what it does instead            JOIN, LEAVE, LEAVE_FOR_A_WHILE
"""

from typing import Final

DEFAULT_PORT: Final = 10911
"""RocketMQ's too."""

MAX_NAMES: Final = 1_024
"""Names of topics in a request."""
MAX_ROWS: Final = 4_096
"""Rows of a request or an answer: offsets, groups, ranges."""
MAX_SEARCHES: Final = 1_024
"""Queues of one search by time; each reads the disk."""
MAX_POSITIONS: Final = 4_096
"""Queues of one pull."""

JOIN: Final = 0
"""As member_epoch: the sender is not a member, or not any more."""
LEAVE: Final = -1
LEAVE_FOR_A_WHILE: Final = -2
"""Of a static member that comes back."""
