"""What a coordinator's answer can mean besides a result.

    result                      it was done; compares that did not hold are a result too
    LeaseLostError              there is no such lease, so nothing was done
    UnknownOutcomeError         it was sent, and may have been done, or may yet be
    CoordinatorUnavailableError everything else: nothing was changed, try again later
    CoordinatorRefusedError     of these, what will not go away by itself

A caller that catches CoordinatorUnavailableError may rely on it that nothing was changed. That is
why an unknown outcome is no subclass of it.
"""

from ..errors import HaError


class CoordinatorError(HaError):
    """Base of this module's errors."""


class CoordinatorUnavailableError(CoordinatorError):
    """No endpoint answered in time. What was asked for has not been done, and will not be."""


class CoordinatorRefusedError(CoordinatorUnavailableError):
    """The coordinator can be reached and refuses: a wrong password, a missing permission, a value
    that is too large. An operator has to act, or the request has to change."""


class UnknownOutcomeError(CoordinatorError):
    """A transaction was sent and no answer came: it may be applied, or may yet be.

    It is pending until the keys that it compares show a revision newer than the one it was made
    for: a read that shows them unchanged proves nothing. It is never sent a second time.
    """


class LeaseLostError(CoordinatorError):
    """The lease does not exist: it expired, was revoked, or never was. `lease_id` names it."""

    def __init__(self, lease_id: int, what: str = "") -> None:
        detail = f": {what}" if what else ""
        super().__init__(f"there is no lease {lease_id:x}{detail}")
        self.lease_id = lease_id
