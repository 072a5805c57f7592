"""``gpuyard cluster``: a cluster from what a scheduler says of its nodes."""

from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from gpuyard.cli.inputs import check_output, open_console, print_json, write_text
from gpuyard.cli.parameters import Json
from gpuyard.errors import InputError

cluster_app = App(name="cluster")


@cluster_app.command(name="import", sort_key=1)
def import_nodes(
    file: Annotated[Path, Parameter(help="Output of scontrol show node or sinfo -N; - is standard input.")],
    /,
    *,
    out: Annotated[Path, Parameter(help="The cluster: .toml.")],
    json: Json = False,
) -> None:
    """Read Slurm's list of nodes and write the cluster as TOML.

    Read are scontrol show node (also -o and --json) and sinfo -N -o '%N %G %c %m %T'.

    Example: gpuyard cluster import scontrol.txt --out cluster.toml
    """
    from gpuyard.cluster.slurm_nodes import slurm_cluster
    from gpuyard.workload.chunks import open_bytes
    from gpuyard.workload.intake.pipes import regular_files

    check_output("--out", out, (".toml",))
    with regular_files([file]) as (path,), open_bytes(path) as content:
        text = content.read().decode("utf-8", errors="replace")
        if not text.strip():
            raise InputError(f"{path}: is empty; a cluster needs at least one node")
        cluster, notes = slurm_cluster(text, path.name.split(".")[0], str(path))
    write_text(out, cluster.to_toml())
    if json:
        print_json({"file": str(out), "cluster": cluster.model_dump(mode="json"), "notes": notes})
        return
    open_console().print(*notes, f"Written: {out}", sep="\n")
