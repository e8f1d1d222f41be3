"""`tandemlog pause`: see the command."""

from tandemlog.cluster.elections import ClusterChange

from ...cluster.changing import change_now
from ...output.tables import Format
from ...shared.command import new_app
from ...shared.exit_codes import epilog
from ...shared.failures import one_line_errors
from ...shared.options import DEFAULT_ENDPOINT, DEFAULT_TIMEOUT_S, Endpoint, FormatOption, Timeout

app = new_app()

TEXTS = (
    "failover is paused: if the master is lost, no other node takes over until `tandemlog resume`",
    "failover was paused already",
)


@app.command("pause", epilog=epilog())
def pause_command(
    endpoint: Endpoint = DEFAULT_ENDPOINT,
    form: FormatOption = Format.TABLE,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
) -> None:
    """Pause failover, for work on the machines: no other node takes over by itself.

    A master that is restarted leads again. `switchover` and `failover --force` work meanwhile.
    """
    with one_line_errors():
        change_now(endpoint, timeout, form, ClusterChange.PAUSE, TEXTS)
