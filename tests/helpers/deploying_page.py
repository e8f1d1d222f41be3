"""The commands of docs/deploying.md, by section."""

from helpers.running import ROOT

PAGE = ROOT / "docs" / "deploying.md"
CODE = "    # exit code "


def commands(heading: str) -> list[str]:
    """Those of the section, as they stand there; one that says how it ends is held to that."""
    found, inside, console = [], False, False
    for line in PAGE.read_text().splitlines():
        if line.startswith("#"):
            inside = line.lstrip("# ") == heading
        elif line.startswith("```"):
            console = line == "```console"
        elif inside and console and line.startswith("$ "):
            command, _, code = line.removeprefix("$ ").partition(CODE)
            found.append(f"{command} || test $? = {code}" if code else command)
    assert found, f"{PAGE} has no commands in a section {heading}"
    return found
