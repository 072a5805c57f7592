"""Tables of pandas, in and out, without pyarrow, which polars' own conversion asks for."""

from typing import TYPE_CHECKING, Any

import polars as pl

from gpuyard.errors import InputError

if TYPE_CHECKING:
    import pandas


def is_pandas(table: object) -> bool:
    """Whether this is a frame of pandas, without loading pandas."""
    return any(kind.__module__.partition(".")[0] == "pandas" for kind in type(table).__mro__)


def from_pandas(table: Any) -> pl.DataFrame:
    """A frame of pandas as one of polars; missing values become null, the index is left out."""
    columns = {}
    for name in table.columns:
        column = table[name].astype(object)
        columns[str(name)] = column.where(column.notna(), None).tolist()
    try:
        return pl.DataFrame(columns, infer_schema_length=None)
    except (TypeError, pl.exceptions.PolarsError) as error:
        raise InputError(f"a column of the frame of pandas mixes types: {error}") from None


def to_pandas(frame: pl.DataFrame) -> "pandas.DataFrame":
    """A frame of polars as one of pandas.

    Raises:
        InputError: if pandas is not installed.
    """
    try:
        import pandas
    except ModuleNotFoundError:
        raise InputError("needs the package pandas; install it with: pip install pandas") from None
    return pandas.DataFrame({name: frame[name].to_list() for name in frame.columns})
