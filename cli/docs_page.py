"""docs/cli.md, made from the program: `python -m tandemlog_server.cli.docs_page > docs/cli.md`.

The exit codes are those of every command, so the page has them once, as a table. A command with
others has its own line.
"""

import sys
from typing import Any

import typer
from typer.cli import get_docs_for_click

from .app import app
from .shared.exit_codes import MEANING, epilog, table

NAME = "tandemlog"

_INTRODUCTION = f"""# The program `{NAME}`

Made from the program by `make docs`; `{NAME} COMMAND --help` shows the same. `{NAME}
--install-completion` lets the shell complete commands, options, and the names of topics and groups.

Times can be written as ISO 8601 (local time if there is no zone), as milliseconds since 1970, as
`now`, or as how long ago: `-30s`, `-15m`, `-1h30m`, `-2d`. Tables show times as dates, `--format
jsonl` as milliseconds.

```sh
tandemlog pull orders --format text | grep refund              # bodies, one per line
tandemlog pull orders --format json | jq .body.price           # bodies that are JSON
tandemlog pull orders --last 10 --format '%D %k %s\\n'          # date, keys, body, as in kcat
tandemlog pull orders --offset -1h --until -5m --format raw    # of a span of time, as they are
tandemlog pull orders --format jsonl > orders.jsonl            # everything, to keep or to copy
tandemlog put copy orders.jsonl --jsonl                        # the same messages, the same order
tandemlog put orders --key-separator : < lines                 # a key in each line
tandemlog put pictures --file a.png --file b.png               # whole files
tandemlog group describe billing                               # members, and the lag of each queue
tandemlog group reset billing --to-time -1h --dry-run          # where it would continue
tandemlog bench both load --create --rate 5000 --duration 10   # rates and latencies
tandemlog stats --watch                                        # what nodes and topics do now
tandemlog top                                                  # the same and the nodes, live
```

## Exit codes

Every command ends with one of these. Only `check` has others, which stand there.

| code | meaning |
|---|---|
"""


def cli_markdown() -> str:
    """The page."""
    command = typer.main.get_command(app)
    context: Any = typer.Context(command, info_name=NAME)
    text = get_docs_for_click(obj=command, ctx=context, name=NAME)
    # the heading of the program itself is that of the page
    body = text.replace(f"# `{NAME}`\n", "## Options\n", 1)
    for each in (epilog(), table()):
        body = body.replace(f"{each}\n\n", "")
    rows = "".join(f"| {code} | {meaning} |\n" for code, meaning in MEANING.items())
    return f"{_INTRODUCTION}{rows}\n{body.strip()}\n"


if __name__ == "__main__":
    sys.stdout.write(cli_markdown())
