"""Why a caller does not get what it asked for. None of these texts quotes a token."""

from .identities import NOUNS, Identity, Right


class NotKnownError(Exception):
    """The caller has not proved who it is; the text says what it lacks."""


class DeniedError(Exception):
    """The caller is known, and lacks the right `right`; for the name at `index` of those that were
    asked for, or for what the record at `record` is for, if it is about one."""

    def __init__(self, right: Right, message: str) -> None:
        super().__init__(message)
        self.right = right
        self.index = -1
        self.record = -1


class OverLimitError(Exception):
    """The connection or the identity uses as much of `field` as it may; it may try again later."""

    def __init__(self, field: str, limit: int, actual: int, message: str) -> None:
        super().__init__(message)
        self.field = field
        self.limit = limit
        self.actual = actual


def denied(identity: Identity, right: Right, what: str) -> DeniedError:
    """`what` is all that the right would have to cover: a name in quotation marks, or words."""
    noun = NOUNS.get(right, "")
    wanted = f"the right {right.value!r}" + (f" for {noun} {what}" if noun else "")
    suffix = "" if noun else f", which {what} needs"
    return DeniedError(right, f"identity {identity.name!r} lacks {wanted}{suffix}")
