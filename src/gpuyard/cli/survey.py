"""``gpuyard workload survey``: what workloads lie in a folder."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from gpuyard.cli.inputs import Flag, Json, open_console, print_json
from gpuyard.errors import InputError


def survey(
    paths: Annotated[list[Path], Parameter(negative=(), help="Folders, or files.")],
    /,
    *,
    markdown: Annotated[bool, Flag, Parameter(help="Print a Markdown table.")] = False,
    json: Json = False,
) -> None:
    """Import every workload below some folders and print a table of what they hold.

    Nothing is written. Files that are refused strictly are tried with their companions in the same folder,
    then leniently, and the table says so. What starts with a dot is left out.

    Example: gpuyard workload survey traces --markdown
    """
    from gpuyard.terminal.console import errors
    from gpuyard.workload.survey import survey as look_through

    if markdown and json:
        raise InputError("--markdown and --json contradict each other; give one of them")
    console = errors()
    if console.is_terminal:
        with console.status("looking") as status:
            entries = look_through(paths, lambda path: status.update(f"reading {path.name}"))
    else:
        entries = look_through(paths)
    if json:
        print_json({"files": [entry.model_dump(mode="json") for entry in entries]})
        return
    from gpuyard.terminal.workload import survey_markdown, survey_table

    if markdown:
        print(survey_markdown(entries))
    else:
        open_console().print(survey_table(entries))
