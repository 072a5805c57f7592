"""What the documents promise is there."""

import re
import runpy
import shlex
from pathlib import Path

import pytest

import gpuyard.policies.grammar  # noqa: F401  (registers the rules)
from gpuyard import cli
from gpuyard.registry import registered
from gpuyard.workload import write_workload
from gpuyard.workload.formats import workload_formats
from gpuyard.workload.generators import preset_workload
from support.paths import DOCS, ROOT

DOCUMENTS = sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md")])
PAGES = [
    path
    for folder in ("start", "guide", "contract", "formats", "algorithms")
    for path in sorted((DOCS / folder).glob("*.md"))
] + [DOCS / "cli.md"]
README = (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_links_between_files_lead_somewhere(path: Path) -> None:
    targets = re.findall(r"\]\(([^)#\s]+)[^)]*\)", path.read_text(encoding="utf-8"))
    for target in targets:
        if not target.startswith("http"):
            assert (path.parent / target).exists(), target


def prose(path: Path) -> str:
    """A document without its blocks of code."""
    return re.sub(r"^```.*?^```$", "", path.read_text(encoding="utf-8"), flags=re.M | re.S)


def anchors(path: Path) -> set[str]:
    """What can be linked to in a document: its headings as GitHub names them, and ids."""
    headings = re.findall(r"^#+ (.*)$", prose(path), re.M)
    names = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
    return names | set(re.findall(r'<a (?:id|name)="([^"]+)"', prose(path)))


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_links_to_headings_lead_to_one(path: Path) -> None:
    for target, anchor in re.findall(r"\]\(([^)#\s]*)#([^)\s]+)\)", prose(path)):
        if not target.startswith("http"):
            assert anchor in anchors(path.parent / target if target else path), f"{target}#{anchor}"


@pytest.mark.parametrize("path", sorted(DOCS.rglob("*.md")), ids=lambda path: path.name)
def test_files_that_are_named_exist(path: Path) -> None:
    folders = "src|core|tests|examples|benchmarks"
    for name in re.findall(rf"`((?:{folders})/[\w./-]+)`", prose(path)):
        assert (ROOT / name).exists(), name


def commands_of(path: Path) -> list[str]:
    """The gpuyard commands of a page, without their comments."""
    text = re.sub(r" *\\\n\s*", " ", path.read_text(encoding="utf-8"))
    shell = "".join(re.findall(r"^```sh\n(.*?)^```$", text, re.M | re.S))
    indented = "".join(re.findall(r"^    (.*\n)", text, re.M))
    return re.findall(r"^gpuyard (.*?)(?: +#.*)?$", shell + indented, re.M)


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_the_commands_of_a_page_parse(path: Path) -> None:
    for command in commands_of(path):
        words = re.sub(r"--plugin[ =]\S+", "", command)  # an option of every command, taken out before
        cli.app.parse_args(shlex.split(words), print_error=False, exit_on_error=False)


def test_the_page_on_notebooks_shows_what_its_cells_give() -> None:
    made = runpy.run_path(str(DOCS / "make_notebook.py"))
    assert made["PAGE"].read_text(encoding="utf-8") == made["page"](), "make docs writes it again"
    assert made["NOTEBOOK"].read_text(encoding="utf-8") == made["notebook"](), "make docs writes it again"


def test_the_page_of_commands_is_the_one_that_make_docs_writes() -> None:
    made = runpy.run_path(str(DOCS / "make_cli.py"))["page"]()
    assert (DOCS / "cli.md").read_text(encoding="utf-8") == made, "make docs writes it again"


def test_the_page_of_commands_has_every_verb_and_examples() -> None:
    text = (DOCS / "cli.md").read_text(encoding="utf-8")
    assert all(f"\n## gpuyard {verb}\n" in text for verb in cli.VERBS)
    assert len(commands_of(DOCS / "cli.md")) >= 15


def test_commands_are_found_in_blocks_and_over_several_lines() -> None:
    assert len(commands_of(DOCS / "start" / "first-replay.md")) == 7
    assert "--draws --windows 10" in commands_of(DOCS / "start" / "first-replay.md")[-1]
    assert len(commands_of(DOCS / "guide" / "workloads.md")) >= 10


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_pages_are_wrapped_at_100_columns(path: Path) -> None:
    """Tables and code excepted."""
    lines = [line for line in prose(path).splitlines() if not line.startswith(("|", "    ", "<!--"))]
    assert not [line for line in lines if len(line) > 100]


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_pages_use_the_words_of_the_glossary(path: Path) -> None:
    """A progress log is no diary, a column is optional and not on request, figures are shown and not told."""
    private = r"\b(diary|on request|beside|told|tells|goes on|go on|learnt)\b"
    assert not re.findall(private, " ".join(prose(path).split()), re.I)


@pytest.mark.parametrize(
    "page", ["formats/job-table", "guide/workloads", "guide/generators", "contract/networks"]
)
def test_the_python_of_a_page_runs(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where ``jobs.csv`` and ``jobs.parquet`` lie, and all blocks of a page make one script."""
    monkeypatch.chdir(tmp_path)
    write_workload(preset_workload("demo").workload, "jobs.csv")
    write_workload(preset_workload("demo").workload, "jobs.parquet")
    text = (DOCS / f"{page}.md").read_text(encoding="utf-8")
    code = "\n".join(re.findall(r"^```python\n(.*?)^```$", text, re.M | re.S))
    assert code
    exec(compile(code, f"{page}.md", "exec"), {})


def test_every_workload_format_has_a_section_and_a_link_to_its_page() -> None:
    folder = ROOT / "docs" / "formats"
    index = (folder / "index.md").read_text(encoding="utf-8")
    for name in workload_formats():
        row = re.search(rf"^\|.*`{name}`.*\]\((.+\.md)\) \|$", index, re.M)
        assert row, name
        page = (folder / row[1]).read_text(encoding="utf-8")
        assert name == "native" or f"\n## {name}\n" in page, name


@pytest.mark.parametrize("kind", ["order", "backfill", "placement"])
def test_the_guide_names_every_native_rule(kind: str) -> None:
    guide = (ROOT / "docs" / "guide" / "policies.md").read_text(encoding="utf-8")
    row = re.search(rf"^\| {kind} \| (.*) \|$", guide, re.M)
    assert row
    native = [name for name, rule in registered(kind).items() if hasattr(rule, "summary")]
    assert re.findall("`([^`:]+)(?::[^`]+)?`", row[1]) == native


def test_the_readmes_commands_parse() -> None:
    commands = re.findall(r"^    gpuyard (.*?)(?: +#.*)?$", README, re.M)
    assert len(commands) >= 5
    for command in commands:
        words = re.sub(r"--plugin[ =]\S+", "", command)  # an option of every command, taken out before
        cli.app.parse_args(shlex.split(words), print_error=False, exit_on_error=False)


def test_the_readmes_commands_write_into_a_directory_of_their_own() -> None:
    commands = re.findall(r"^    gpuyard (?:simulate|evaluate) .*--out (\S+)", README, re.M)
    assert len(commands) == len(set(commands)) >= 2


def test_the_readmes_python_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = re.findall(r"```python\n(.*?)```", README, re.S)
    assert len(blocks) >= 2
    monkeypatch.chdir(tmp_path)
    Path("jobs.csv").write_text("submit_s,duration_s,gpus\n0,10,8\n1,5,1\n")
    for block in blocks:
        exec(compile(block, "README.md", "exec"), {})
