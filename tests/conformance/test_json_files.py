"""Every JSON document that gpuyard reads is refused by name if it states what cannot be kept."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest
import torch

from gpuyard.cluster.model import Cluster
from gpuyard.errors import InputError
from gpuyard.evaluate import Comparison
from gpuyard.files import read_toml
from gpuyard.learn.process.checkpoint import Checkpoint, read_checkpoint, write_checkpoint
from gpuyard.network.model_file import read_model
from gpuyard.report import write_report
from gpuyard.runs.directory import open_run
from gpuyard.runs.progress import read_progress
from gpuyard.workload import SynthConfig, import_trace, read_workload, synthesize, write_workload
from gpuyard.workload.generators.fitting import fit_trace
from gpuyard.workload.generators.like import read_fitted
from gpuyard.workload.intake.import_reports import read_report
from gpuyard.workload.intake.import_reports import write_report as write_import_report
from support.evaluation_cases import comparison_of
from support.paths import DATA, ROOT
from support.report_cases import jobs_with_names, simulated
from support.sample_runs import sample_records

GAVEL = DATA / "gavel"
DEEP = "[" * 100_000 + "]" * 100_000

Change = Callable[[str], str]


def fitted(folder: Path, change: Change) -> None:
    path = folder / "fitted.json"
    path.write_text(change(fit_trace(synthesize(SynthConfig(jobs=300))).model_dump_json()))
    read_fitted(path)


def import_report(folder: Path, change: Change) -> None:
    trace, path = next(GAVEL.glob("*.trace")), folder / "report.json"
    write_import_report(import_trace([trace, next(GAVEL.glob("*.json"))]).report, path, trace)
    path.write_text(change(path.read_text()))
    read_report(path)


def evaluation(folder: Path, change: Change) -> None:
    comparison_of({"base": [1.0, 2.0, 3.0], "good": [0.5, 1.0, 1.8]}).write(folder)
    path = folder / "results.json"
    path.write_text(change(path.read_text()))
    Comparison.read(folder)


def results(folder: Path, change: Change) -> None:
    simulated(folder, ("fifo",), jobs=jobs_with_names(20))
    path = folder / "results.json"
    path.write_text(change(path.read_text()))
    write_report(folder / "report.html", [folder])


def gavel_throughputs(folder: Path, change: Change) -> None:
    path = folder / "throughputs.json"
    path.write_text(change(next(GAVEL.glob("*.json")).read_text()))
    import_trace([next(GAVEL.glob("*.trace")), path], "gavel")


def progress_log(folder: Path, change: Change) -> None:
    path = folder / "progress.jsonl"
    path.write_text("".join(change(json.dumps(record)) + "\n" for record in sample_records(3)))
    read_progress(path)


def rewritten(path: Path, source: bytes, key: str, change: Change) -> None:
    """A safetensors file whose own description is changed."""
    length = int.from_bytes(source[:8], "little")
    head = json.loads(source[8 : 8 + length])
    head["__metadata__"][key] = change(head["__metadata__"][key])
    text = json.dumps(head).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + source[8 + length :])


def model(folder: Path, change: Change) -> None:
    shipped = ROOT / "src" / "gpuyard" / "models" / "bursty-order.safetensors"
    rewritten(folder / "model.safetensors", shipped.read_bytes(), "gpuyard", change)
    read_model(folder / "model.safetensors")


def model_contents(folder: Path, change: Change) -> None:
    data = (ROOT / "src" / "gpuyard" / "models" / "bursty-order.safetensors").read_bytes()
    length = int.from_bytes(data[:8], "little")
    text = change(data[8 : 8 + length].decode()).encode()
    (folder / "model.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + data[8 + length :])
    read_model(folder / "model.safetensors")


def checkpoint(folder: Path, change: Change) -> None:
    path = folder / "checkpoint.safetensors"
    made = Checkpoint({"step": 7, "name": "x", "best": 1.5})
    made.add("networks/policy", {"weight": torch.ones(2)})
    write_checkpoint(path, made)
    head = json.loads(path.read_bytes()[8 : 8 + int.from_bytes(path.read_bytes()[:8], "little")])
    rewritten(path, path.read_bytes(), next(iter(head["__metadata__"])), change)
    read_checkpoint(path)


def parquet_metadata(folder: Path, change: Change) -> None:
    path = folder / "jobs.parquet"
    write_workload(synthesize(SynthConfig(jobs=20)), path)
    kept = {
        key: change(value) if value.startswith("{") and "history" in value else value
        for key, value in pl.read_parquet_metadata(path).items()
        if key != "ARROW:schema"
    }
    pl.read_parquet(path).write_parquet(path, metadata=kept)
    read_workload(path)


DOCUMENTS: dict[str, Callable[[Path, Change], None]] = {
    function.__name__: function
    for function in (
        fitted, import_report, evaluation, results, gavel_throughputs, progress_log, model, model_contents,
        checkpoint, parquet_metadata,
    )
}  # fmt: skip


def with_entry(entry: str) -> Change:
    """One entry more, at the beginning."""
    return lambda document: document.replace("{", f"{{{entry}, ", 1)


def with_text(text: str) -> Change:
    """The first text that is a value, or the first key if there is none, becomes another."""

    def change(document: str) -> str:
        changed, found = re.subn(r'(:\s*)"[^"]*"', lambda old: f'{old[1]}"{text}"', document, count=1)
        return changed if found else with_entry(f'"{text}": 1')(document)

    return change


def with_number(number: str) -> Change:
    """The first number becomes another."""
    return lambda document: re.sub(
        r"([:\[]\s*)-?\d[-+.\deE]*", lambda old: old[1] + number, document, count=1
    )


POISONS: dict[str, Change] = {
    "half of a UTF-16 pair": with_text("\\ud800"),
    "the other half": with_text("a\\uDFFFb"),
    "half of a UTF-16 pair in a key": with_entry('"\\ud800": 1'),
    "a number beyond floats": with_number("1e999"),
    "a number of many digits": with_number("9" * 5000),
    "NaN": with_number("NaN"),
    "infinity": with_number("-Infinity"),
    "deep nesting": with_entry(f'"deep": {DEEP}'),
}
ACCEPTED = {("checkpoint", poison) for poison in ("a number beyond floats", "NaN", "infinity")}
"""A learner's own state may hold a score that is not finite; Python wrote it so."""


@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_document_as_it_was_written_is_read(name: str, tmp_path: Path) -> None:
    DOCUMENTS[name](tmp_path, lambda text: text)


CASES = [(name, poison) for name in DOCUMENTS for poison in POISONS if (name, poison) not in ACCEPTED]


@pytest.mark.parametrize(("name", "poison"), CASES)
def test_a_document_that_cannot_be_kept_is_refused_by_name(name: str, poison: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=re.escape(str(tmp_path))) as refused:
        DOCUMENTS[name](tmp_path, POISONS[poison])
    str(refused.value).encode()


@pytest.mark.parametrize("name", ["evaluation", "results", "gavel_throughputs", "progress_log", "model"])
def test_a_document_that_states_a_key_twice_is_refused(name: str, tmp_path: Path) -> None:
    def twice(text: str) -> str:
        first = re.match(r'\{\s*("[^"]*")', text)
        assert first is not None
        return with_entry(f"{first[1]}: 0")(text)

    with pytest.raises(InputError, match=re.escape(str(tmp_path))):
        DOCUMENTS[name](tmp_path, twice)


def test_a_text_with_a_nul_is_kept(tmp_path: Path) -> None:
    fitted(tmp_path, with_text("a\\u0000b"))
    assert read_fitted(tmp_path / "fitted.json").name == "a\0b"


@pytest.mark.parametrize("text", ['name = "\\ud800"', f"name = {DEEP}"])
def test_toml_that_cannot_be_kept_is_refused_by_name(text: str, tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text(text)
    (tmp_path / "progress.jsonl").write_text("")
    for read in (Cluster.from_toml, read_toml, lambda path: open_run(path.parent)):
        with pytest.raises(InputError, match=r"config\.toml"):
            read(path)
