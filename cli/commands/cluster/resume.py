"""`tandemlog resume`: see the command."""

from tandemlog.cluster.elections import ClusterChange

from ...cluster.changing import change_now
from ...output.tables import Format
from ...shared.command import new_app
from ...shared.exit_codes import epilog
from ...shared.failures import one_line_errors
from ...shared.options import DEFAULT_ENDPOINT, DEFAULT_TIMEOUT_S, Endpoint, FormatOption, Timeout

app = new_app()

TEXTS = ("failover works again", "failover was not paused")


@app.command("resume", epilog=epilog())
def resume_command(
    endpoint: Endpoint = DEFAULT_ENDPOINT,
    form: FormatOption = Format.TABLE,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
) -> None:
    """End a pause: when the master is lost, an in-sync node takes over by itself again."""
    with one_line_errors():
        change_now(endpoint, timeout, form, ClusterChange.RESUME, TEXTS)
