"""Self-contained HTML pages: one file, no scripts, no network, light and dark."""

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from urllib.parse import quote

from gpuyard.report.pages.charts import COLOURS

LONG_VALUE = 20
"""Characters from which on a tile's value is set smaller."""

_STYLE = """
:root { --paper: #fff; }
body { margin: 0 auto; max-width: 76rem; padding: 1.5rem; font: 15px/1.5 system-ui, sans-serif;
  background: var(--paper); color: #1c2430; }
h1 { font-size: 1.6rem; margin: 0; } h2 { font-size: 1.15rem; margin: 2rem 0 .6rem; }
.subtitle, .muted, footer { color: #5b6676; } footer { margin-top: 2.5rem; font-size: .85rem; }
.tiles { display: grid; grid-template-columns: repeat(auto-fill, minmax(11rem, 1fr)); gap: .7rem;
  margin: 1.2rem 0; padding: 0; }
.tiles div { border: 1px solid #d9dfe7; border-radius: .5rem; padding: .55rem .8rem; }
.tiles dt { font-size: .82rem; color: #5b6676; }
.tiles dd { margin: 0; font-size: 1.15rem; font-weight: 600; overflow-wrap: anywhere; }
.tiles dd.long { font-size: .92rem; line-height: 1.35; }
.charts { display: grid; gap: 1.2rem;
  grid-template-columns: repeat(auto-fit, minmax(min(30rem, 100%), 1fr)); }
figure { margin: 0; border: 1px solid #d9dfe7; border-radius: .5rem; padding: .8rem; min-width: 0; }
figcaption { font-weight: 600; margin-bottom: .4rem; display: flex; flex-wrap: wrap; gap: .2rem 1rem; }
.legend { font-weight: 400; font-size: .85rem; display: flex; flex-wrap: wrap; gap: .1rem .9rem;
  align-items: center; overflow-wrap: anywhere; }
.key i { display: inline-block; width: .8rem; height: .8rem; border-radius: .15rem; margin-right: .35rem;
  vertical-align: -.08rem; }
table { border-collapse: collapse; } th, td { padding: .25rem .9rem .25rem 0; text-align: left; }
th { border-bottom: 1px solid #b9c2cf; font-size: .85rem; } td.number, th.number { text-align: right;
  font-variant-numeric: tabular-nums; } td { overflow-wrap: anywhere; }
.finding { border: 1px solid #d9dfe7; border-left: .35rem solid var(--shade); border-radius: .5rem;
  padding: .7rem 1rem; margin: .7rem 0; overflow-wrap: anywhere; }
.finding h3 { margin: 0; font-size: 1rem; } .finding p { margin: .35rem 0 0; }
.severity { background: var(--shade); color: #fff; border-radius: .3rem; padding: .05rem .5rem;
  font-size: .8rem; font-weight: 600; margin-right: .5rem; }
.serious { --shade: #c62828; } .warning { --shade: #b45309; } .note { --shade: #47617f; }
details { font-size: .85rem; margin-top: .3rem; } summary { cursor: pointer; color: #5b6676; }
.scroll { overflow-x: auto; max-height: 22rem; } a { color: var(--series-1); }
code { font: .88em ui-monospace, monospace; }
@media (prefers-color-scheme: dark) {
  :root { --paper: #12161c; } body { color: #e4e9f0; }
  .subtitle, .muted, footer, .tiles dt, summary { color: #9aa7b8; }
  .tiles div, figure, .finding { border-color: #2c3643; } .finding { border-left-color: var(--shade); }
  th { border-color: #45505f; }
  .serious { --shade: #d9483f; } .warning { --shade: #b86e14; } .note { --shade: #56718f; }
}
@media print { figure, .finding { break-inside: avoid; } }
"""

_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<header><h1>{title}</h1><div class="subtitle">{subtitle}</div></header>
<main>
{body}
</main>
<footer>{footer}</footer>
</body>
</html>
"""


def page(title: str, subtitle: str, sections: Iterable[str]) -> str:
    """A whole page. ``title`` and ``subtitle`` are text; sections are HTML made by the functions below."""
    return _PAGE.format(
        title=escape(title),
        subtitle=escape(subtitle),
        style=COLOURS + _STYLE,
        body="\n".join(sections),
        footer="Made by gpuyard.",
    )


def tiles(facts: Mapping[str, str]) -> str:
    """Names and values in a row of boxes."""
    boxes = []
    for name, value in facts.items():
        mark = ' class="long"' if len(value) > LONG_VALUE else ""
        boxes.append(f"<div><dt>{escape(name)}</dt><dd{mark}>{escape(value)}</dd></div>")
    return f'<dl class="tiles">{"".join(boxes)}</dl>'


def section(heading: str, *parts: str) -> str:
    """A heading with what stands under it."""
    return f"<section><h2>{escape(heading)}</h2>{''.join(parts)}</section>"


def charts(*figures: str) -> str:
    """Charts side by side, as far as there is room."""
    return f'<div class="charts">{"".join(figures)}</div>'


def paragraph(text: str) -> str:
    """A muted paragraph."""
    return f'<p class="muted">{escape(text)}</p>'


def html_table(columns: Sequence[str], rows: Iterable[Sequence[str]], *, numbers: Sequence[int] = ()) -> str:
    """A table of texts; columns numbered in ``numbers`` are aligned to the right."""

    def cells(tag: str, values: Sequence[str]) -> str:
        marked = (' class="number"' if index in numbers else "" for index in range(len(values)))
        return "".join(
            f"<{tag}{mark}>{escape(value)}</{tag}>" for mark, value in zip(marked, values, strict=True)
        )

    body = "".join(f"<tr>{cells('td', row)}</tr>" for row in rows)
    return f"<table><thead><tr>{cells('th', columns)}</tr></thead><tbody>{body}</tbody></table>"


def folded(summary: str, content: str) -> str:
    """HTML that shows when its summary, a text, is clicked."""
    return f'<details><summary>{escape(summary)}</summary><div class="scroll">{content}</div></details>'


def download(name: str, kind: str, text: str) -> str:
    """A link to a file that the page itself holds.

    Args:
        name: Of the file.
        kind: Its media type, such as ``text/csv``.
        text: What is in it.
    """
    return f'<a download="{escape(name)}" href="data:{kind};charset=utf-8,{quote(text)}">{escape(name)}</a>'


def finding(severity: str, title: str, id: str, lines: Iterable[str]) -> str:
    """A box with a coloured severity (serious, warning or note)."""
    said = "".join(f"<p>{escape(line)}</p>" for line in lines)
    return (
        f'<div class="finding {escape(severity)}"><h3><span class="severity">{escape(severity)}</span>'
        f"{escape(title)}</h3>{said}<p class='muted'><code>{escape(id)}</code></p></div>"
    )
