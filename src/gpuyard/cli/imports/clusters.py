"""``gpuyard cluster``: a cluster from what a scheduler says of its nodes."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter

from gpuyard.cli.inputs import check_output, open_console, print_json, write_text
from gpuyard.cli.parameters import Json
from gpuyard.errors import InputError

if TYPE_CHECKING:
    from gpuyard.cluster.imports.listed import ImportedCluster

cluster_app = App(name="cluster")


@cluster_app.command(name="import", sort_key=1)
def import_nodes(
    files: Annotated[
        list[Path],
        Parameter(
            negative=(),
            help="slurm.conf, with gres.conf if there is one, or lists of nodes; - is standard input. What a "
            "file is shows in its content.",
        ),
    ],
    /,
    *,
    out: Annotated[Path, Parameter(help="The cluster: .toml.")],
    policy_out: Annotated[
        Path | None,
        Parameter(help="The policy that slurm.conf describes, with its weights: .toml, for --policy."),
    ] = None,
    json: Json = False,
) -> None:
    """Read a scheduler's configuration or list of nodes and write the cluster as TOML.

    Read are slurm.conf and gres.conf; scontrol show node (also -o and --json), scontrol show partition,
    sinfo -N -o '%N %G %c %m %T %P', sacctmgr -P show qos, sacctmgr -P show assoc; LSF's lshosts -w and
    bhosts -w, also with -gpu; kubectl get nodes -o json.

    Example: gpuyard cluster import slurm.conf gres.conf --out cluster.toml --policy-out policy.toml
    """
    from gpuyard.cluster.imports.recognise import import_cluster
    from gpuyard.policies.policy_file import policy_file_text
    from gpuyard.workload.intake.pipes import regular_files

    check_output("--out", out, (".toml",))
    check_output("--policy-out", policy_out, (".toml",))
    with regular_files(files) as paths:
        found = import_cluster({path: _text(path) for path in paths})
    if policy_out is not None and found.policy is None:
        raise InputError(
            f"--policy-out {policy_out}: only slurm.conf says what the policy is; give that file"
        )
    write_text(out, found.cluster.to_toml())
    if policy_out is not None and found.policy is not None:
        write_text(policy_out, policy_file_text(found.policy, found.settings))
    _show(found, out, policy_out, json=json)


def _text(path: Path) -> str:
    from gpuyard.workload.chunks import open_bytes

    with open_bytes(path) as content:
        return content.read().decode("utf-8", errors="replace")


def _show(found: "ImportedCluster", out: Path, policy_out: Path | None, *, json: bool) -> None:
    from dataclasses import asdict

    from gpuyard.terminal.cluster import finding_table, finding_words

    if json:
        print_json(
            {
                "file": str(out),
                "cluster": found.cluster.model_dump(mode="json"),
                "notes": found.notes,
                "findings": [asdict(one) for one in found.findings],
                "policy": found.policy,
                "settings": dict(found.settings),
            }
        )
        return
    console = open_console()
    console.print(*found.notes, sep="\n")
    if found.findings:
        console.print("", finding_table(found.findings), "", finding_words(found.findings), sep="\n")
    written = f"{out}" if policy_out is None else f"{out} and {policy_out} ({found.policy})"
    console.print(f"Written: {written}")
