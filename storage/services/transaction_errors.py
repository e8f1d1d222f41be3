"""Why a transaction is not ended as it was asked for."""

from tandemlog.format.words import counted, quoted

from ..errors import StoreError


class TransactionDecidedError(StoreError):
    """It has ended the other way."""

    def __init__(self, transaction_id: str, *, committed: bool) -> None:
        self.committed = committed
        how, other = ("committed", "rolled back") if committed else ("rolled back", "committed")
        super().__init__(
            f"transaction {quoted(transaction_id)} is {how}, so it cannot be {other} any more"
        )


class UnknownTransactionError(StoreError):
    """Not all of its messages are here, or none is."""

    def __init__(self, transaction_id: str, wanted: int, found: int) -> None:
        why = (
            "send the missing ones, or roll it back"
            if found
            else "it was never begun here, it was rolled back, or it ended too long ago to be known"
        )
        super().__init__(
            f"transaction {quoted(transaction_id)} has {counted(wanted, 'message')} by its sender, "
            f"and {found} here: {why}"
        )


class TransactionsNotReadyError(StoreError):
    """The term has begun, and what the last master has decided is not known yet; or the transaction
    is changing in this moment."""


class HalvesUnreadableError(StoreError):
    """Its messages cannot be read, so they cannot be committed."""

    def __init__(self, transaction_id: str, unreadable: int, count: int) -> None:
        super().__init__(
            f"{unreadable} of {counted(count, 'message')} of transaction {quoted(transaction_id)} "
            "cannot be read: roll it back, or repair the store (tandemlog verify)"
        )
