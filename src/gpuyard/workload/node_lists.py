"""Lists of node names, in one form: expanded, each name once, joined by ``|``."""

import polars as pl

from gpuyard.cluster.hostlists import expanded_nodes

SEPARATOR = "|"
_NO_NODES = ("None assigned", "None", "none", "(null)", "Unknown", "N/A")
"""How logs write that a job had no node."""


def canonical_nodes(texts: pl.Series) -> pl.Series:
    """Lists such as ``node[01-02,7],gpu3`` as ``node01|node02|node7|gpu3``, in the order of the log.

    Null for lists that cannot be read, that are empty, or that stand for more than ``MOST_NODES`` names.
    """
    texts = texts.str.strip_chars()
    texts = texts.set(texts.is_in([*_NO_NODES, ""]).fill_null(False), None)
    # Most jobs have one node, which stands as it is; many of the others share a list, which is read once.
    several = texts.str.contains(r"[\[\],|+\s]").fill_null(False)
    if not several.any():
        return texts
    distinct = texts.filter(several).unique()
    expanded = pl.Series([_joined(text) for text in distinct], dtype=pl.String)
    table = pl.DataFrame({"text": distinct, "names": expanded})
    joined = texts.to_frame("text").join(table, on="text", how="left", maintain_order="left")["names"]
    return joined.zip_with(several, texts).alias(texts.name)


def _joined(text: str) -> str | None:
    names = expanded_nodes(text)
    return SEPARATOR.join(names) if names else None
