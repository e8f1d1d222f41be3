"""What goes wrong under a command becomes one clear line on stderr and an exit code."""

import errno
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import typer

from tandemlog import errors as client_errors
from tandemlog.archive import errors as archive_errors
from tandemlog.format.errors import FormatError
from tandemlog_server.ha.errors import HaError, StateFileError
from tandemlog_server.node.settings.config_error import ConfigError
from tandemlog_server.storage.errors import StoreError

from . import exit_codes


class CommandError(Exception):
    """A command that cannot continue; `exit_code` is one of exit_codes."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


# The first row whose class fits counts, so a subclass comes before its base.
_TABLE: tuple[tuple[type[Exception], int], ...] = (
    (client_errors.NodeUnavailableError, exit_codes.UNREACHABLE),
    (client_errors.CoordinatorUnavailableError, exit_codes.UNREACHABLE),
    (client_errors.OutcomeUnknownError, exit_codes.UNKNOWN_OUTCOME),
    (client_errors.UnknownTopicError, exit_codes.NOT_FOUND),
    (client_errors.UnknownQueueError, exit_codes.NOT_FOUND),
    (client_errors.UnknownGroupError, exit_codes.NOT_FOUND),
    (client_errors.OffsetOutOfRangeError, exit_codes.NOT_FOUND),
    (client_errors.InvalidTopicNameError, exit_codes.USAGE),
    (client_errors.InvalidArgumentError, exit_codes.USAGE),
    (client_errors.InvalidMessageError, exit_codes.USAGE),
    (client_errors.SecurityError, exit_codes.USAGE),
    (archive_errors.ArchiveUrlError, exit_codes.USAGE),
    (archive_errors.ArchiveUnavailableError, exit_codes.UNREACHABLE),
    (archive_errors.NotArchivedError, exit_codes.NOT_FOUND),
    (archive_errors.BackupRefusedError, exit_codes.REFUSED),
    (archive_errors.ArchiveError, exit_codes.STORE),
    (client_errors.TandemlogError, exit_codes.REFUSED),
    (StoreError, exit_codes.STORE),
    (StateFileError, exit_codes.STORE),
    (HaError, exit_codes.FAULT),
    (FormatError, exit_codes.STORE),
    (ConfigError, exit_codes.USAGE),
)
_WAYS_OUT: tuple[tuple[type[Exception], str], ...] = (
    (client_errors.UnknownTopicError, "; `tandemlog topic list` shows the topics"),
    (client_errors.UnknownGroupError, "; `tandemlog group list` shows the groups"),
)


def text_of(problem: Exception) -> str:
    """Its text, with the command that helps where there is one."""
    return f"{problem}{next((way for kind, way in _WAYS_OUT if isinstance(problem, kind)), '')}"


def fail(message: str, exit_code: int) -> typer.Exit:
    """Say `message` on stderr; raise the answer."""
    sys.stdout.flush()
    for line in message.splitlines() or [""]:
        sys.stderr.write(f"tandemlog: {line}\n")
    return typer.Exit(exit_code)


def exit_code_of(problem: Exception) -> int:
    """The exit code for an expected problem; FAULT for one that no row names."""
    codes = (exit_code for kind, exit_code in _TABLE if isinstance(problem, kind))
    return next(codes, exit_codes.FAULT)


def _is_expected(problem: Exception) -> bool:
    return any(isinstance(problem, kind) for kind, _ in _TABLE)


@contextmanager
def one_line_errors() -> Iterator[None]:
    """Around the body of every command (command.py). An expected error ends it with typer.Exit; any
    other error keeps its traceback, since it is a bug."""
    try:
        yield
    except CommandError as error:
        raise fail(str(error), error.exit_code) from None
    except KeyboardInterrupt:
        raise fail("interrupted", exit_codes.INTERRUPTED) from None
    except BrokenPipeError:
        # the reader of our output has ended: `tandemlog dump … | head` is not a failure
        sys.stdout = open("/dev/null", "w")  # noqa: SIM115 - lives to the end of the process
        raise typer.Exit(exit_codes.OK) from None
    except UnicodeEncodeError as error:
        # half a surrogate pair in a line of JSON, on its way into a request; of arguments see
        # command.py
        text = f"not valid UTF-8: {error.object!r}"
        raise fail(text, exit_codes.USAGE) from None
    except OSError as error:
        raise fail(_os_error(error), exit_codes.STORE) from None
    except Exception as error:
        if _is_expected(error):
            raise fail(text_of(error), exit_code_of(error)) from None
        raise


@contextmanager
def ending_with(exit_code: int, *kinds: type[Exception]) -> Iterator[None]:
    """These errors, which only some commands know, end the command with `exit_code`."""
    try:
        yield
    except kinds as error:
        raise CommandError(str(error), exit_code) from None


def _os_error(problem: OSError) -> str:
    name = problem.filename if problem.filename is not None else ""
    reason = problem.strerror or str(problem)
    if problem.errno == errno.EACCES:
        reason += "; run it as the owner of the files"
    return f"{name}: {reason}" if name else reason
