"""Run the Python of docs/start/first-notebook.md, and write what a notebook shows below each cell.

The same cells and outputs become examples/first-notebook.ipynb, for Jupyter. Run by ``make docs``.
"""

import ast
import json
import re
import textwrap
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parent / "start" / "first-notebook.md"
NOTEBOOK = Path(__file__).parents[1] / "examples" / "first-notebook.ipynb"
OUTPUT = "<!-- shown below the cell -->"
END = "<!-- end -->"
WIDTH = 100
_CELL = re.compile(rf"```python\n(.*?)```\n(?:\n{OUTPUT}\n.*?\n{END}\n)?", re.DOTALL)


def page() -> str:
    """The page with outputs as they are now."""
    names: dict[str, Any] = {}

    def cell(match: re.Match[str]) -> str:
        shown = run_cell(match[1], names)
        below = f"\n{OUTPUT}\n\n{markdown_of(shown)}\n\n{END}\n" if shown else ""
        return f"```python\n{match[1]}```\n{below}"

    return _CELL.sub(cell, PAGE.read_text(encoding="utf-8"))


def notebook() -> str:
    """The page as a Jupyter notebook with its outputs."""
    names: dict[str, Any] = {}
    text, cells, at = PAGE.read_text(encoding="utf-8"), [], 0
    for match in _CELL.finditer(text):
        cells += _prose(text[at : match.start()])
        cells.append(_code(match[1], run_cell(match[1], names)))
        at = match.end()
    cells += _prose(text[at:])
    for number, cell in enumerate(cells):
        cell["id"] = f"cell-{number}"
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    document = {"cells": cells, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


def run_cell(source: str, names: dict[str, Any]) -> str:
    """Run a cell; the HTML that a notebook shows of its last expression, empty if there is none."""
    tree = ast.parse(source)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, str(PAGE), "exec"), names)
    if last is None:
        return ""
    value = eval(compile(ast.Expression(last.value), str(PAGE), "eval"), names)
    return str(value._repr_html_()) if hasattr(value, "_repr_html_") else f"<p>{value!r}</p>"


def _prose(text: str) -> list[dict[str, Any]]:
    kept = text.strip()
    return [{"cell_type": "markdown", "metadata": {}, "source": kept}] if kept else []


def _code(source: str, shown: str) -> dict[str, Any]:
    data = {"text/html": shown, "text/plain": markdown_of(shown)}
    result = {"data": data, "execution_count": None, "metadata": {}, "output_type": "execute_result"}
    return {
        "cell_type": "code",
        "execution_count": None,
        "metadata": {},
        "outputs": [result] if shown else [],
        "source": source.rstrip("\n"),
    }


def markdown_of(html: str) -> str:
    """Paragraphs and tables as Markdown; styles are left out."""
    reader = _Reader()
    reader.feed(html)
    return "\n\n".join(filter(None, reader.blocks))


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.blocks: list[str] = []
        self._rows: list[list[str]] = []
        self._text = ""
        self._skips = False

    def handle_starttag(self, tag: str, _: Any) -> None:
        if tag in ("style", "small"):
            self._skips = True
        elif tag == "table":
            self._rows = []
        elif tag == "tr":
            self._rows.append([])
        elif tag in ("td", "th", "p"):
            self._text = ""

    def handle_data(self, data: str) -> None:
        if not self._skips:
            self._text += data

    def handle_endtag(self, tag: str) -> None:
        if tag in ("style", "small"):
            self._skips = False
        elif tag in ("td", "th"):
            self._rows[-1].append(self._text.strip().replace("|", "\\|"))
        elif tag == "p":
            self.blocks.append(textwrap.fill(self._text.strip(), WIDTH))
        elif tag == "table":
            head, *rest = self._rows
            lines = [head, ["---"] * len(head), *rest]
            self.blocks.append("\n".join(f"| {' | '.join(row)} |" for row in lines))


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    NOTEBOOK.write_text(notebook(), encoding="utf-8")
