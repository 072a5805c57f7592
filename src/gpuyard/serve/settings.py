"""Settings of ``gpuyard serve``: from a TOML file, with flags of the command line on top."""

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from gpuyard.config import SimulationConfig, refusal
from gpuyard.errors import InputError, setting
from gpuyard.files import read_toml

Mode = Literal["shadow", "advise", "canary", "active"]
Control = Literal["order", "start"]
Scheduler = Literal["slurm", "lsf", "kubernetes", "http"]
Seconds = Annotated[float, Field(gt=0, le=1e9)]
Count = Annotated[int, Field(ge=0, le=1_000_000)]


class KubernetesSettings(BaseModel):
    """How the agent of a Kubernetes cluster reaches it and lets pods start."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    lever: Literal["gates", "binding", "extender", "kueue"] = "gates"
    """gates opens scheduling gates; binding is a scheduler of its own; extender answers kube-scheduler; kueue
    admits workloads."""
    kubeconfig: Path | None = None
    """Not given: the pod that the agent runs in, then $KUBECONFIG, then ~/.kube/config."""
    namespace: str = "gpuyard"
    """Namespace of the Lease by which agents agree who leads."""
    lease: str = "gpuyard"
    """Name of that Lease. The watchdog takes an agent that does not renew it for dead."""
    lease_s: Annotated[int, Field(ge=3, le=3600)] = 15
    """Another agent takes the lead when the Lease was not renewed for this long, s."""
    admission_check: str = "gpuyard"
    """Name of the AdmissionCheck of Kueue that the agent answers."""
    tls_cert: Path | None = None
    """Certificate for the TCP address; API servers call webhooks by HTTPS only."""
    tls_key: Path | None = None
    """Its key."""


class ServeSettings(BaseModel):
    """How a policy serves a live cluster."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    scheduler: Scheduler = "slurm"
    """Whose cluster it is, for halt, release and the watchdog; gpuyard serve slurm and lsf set it."""
    policy: str = "fifo+easy"
    """The policy: a name, a policy file, a run directory or a model."""
    mode: Mode = "shadow"
    """shadow never writes; advise publishes the order; canary acts on some jobs; active on all."""
    control: Control = "order"
    """order sets priorities, and Slurm starts jobs; start releases held jobs onto chosen nodes."""
    fallback: str = "fifo+easy"
    """Decides when the policy cannot, and is compared with it at every round."""
    current: str = "fifo+easy"
    """The policy that comes nearest to what runs today, for predictions of what happens without the agent."""
    estimates: Literal["requested", "history"] = "requested"
    """Where run times that policies go by come from: users' limits, or jobs that finished."""

    cluster: str | None = None
    """A cluster file with what the scheduler does not tell, such as speeds; its nodes must be named alike."""

    state_dir: Path = Path("gpuyard-serve")
    """Directory of the journal, the heartbeat, the halt file and the socket."""
    interval_s: Seconds = 1.0
    """Time from one round to the next, s."""
    deadline_ms: Annotated[float, Field(gt=0, le=600_000)] = 50.0
    """A policy that takes longer is replaced by the fallback for this round, ms."""
    max_age_s: Seconds = 30.0
    """Nothing is decided on a state that is older than this, s."""
    good_rounds: Annotated[int, Field(ge=1, le=1_000_000)] = 10
    """After a failure the policy decides again when it would have decided well this many times in a row."""
    max_errors: Annotated[int, Field(ge=1, le=1000)] = 5
    """After this many rounds with errors in a row the fallback decides."""

    max_wait_s: Seconds = 7 * 24 * 3600.0
    """Jobs that have waited longer go first, the oldest before the others, whatever the policy says, s."""
    max_starts: Annotated[int, Field(ge=1, le=1_000_000)] = 100
    """Jobs that one round may start, at most."""
    max_reorders: Annotated[int, Field(ge=1, le=1_000_000)] = 200
    """Priorities that one round may write, at most."""
    max_preemptions_per_job_hour: Count = 0
    """Requeues of one job within an hour, at most; 0: no job is ever stopped."""
    max_lost_gpu_hours_per_day: Annotated[float, Field(ge=0, le=1e9)] = 0.0
    """Work that requeues may throw away within a day, GPU-hours."""
    lowest_priority: Annotated[int, Field(ge=1, le=2**32 - 3)] = 1_000_000_000
    """Least priority that the agent gives a job; 0 would hold it."""
    highest_priority: Annotated[int, Field(ge=1, le=2**32 - 3)] = 2_000_000_000
    """Largest priority that the agent gives a job."""
    start_timeout_s: Seconds = 60.0
    """A job that was released and does not run after this long is given back, s."""

    watchdog_s: Annotated[float, Field(ge=2, le=86_400)] = 60.0
    """The watchdog gives all jobs back when the agent has shown no life for this long, s."""
    canary_partitions: tuple[str, ...] = ()
    """In canary mode, act on jobs of these partitions."""
    canary_users: tuple[str, ...] = ()
    """In canary mode, act on jobs of these users."""
    canary_share: Annotated[float, Field(ge=0, le=1)] = 0.0
    """In canary mode, act on this share of all jobs, drawn by job id."""

    keep_days: Annotated[float, Field(gt=0, le=36_500)] = 30.0
    """Rounds older than this are removed from the journal, days."""
    keep_mb: Annotated[float, Field(ge=1, le=1e7)] = 2_000.0
    """The oldest rounds are removed from a journal larger than this, MB."""

    listen: str | None = None
    """Also serve HTTP on this address, such as 127.0.0.1:9200; needs token_file. A unix socket in state_dir
    is always there."""
    token_file: Path | None = None
    """File whose first line is the token that clients of a TCP address must send."""

    command_timeout_s: Seconds = 10.0
    """A command of the scheduler that takes longer is ended, s."""
    rest: str | None = None
    """Address of slurmrestd: unix:/path/to/socket or http://HOST:PORT. Without it, commands are used."""
    rest_token_file: Path | None = None
    """File whose first line is the JWT for slurmrestd."""
    rest_user: str | None = None
    """User name that goes with the JWT; None: the one that the agent runs as."""
    lsf_start: Literal["bmod", "brun"] = "bmod"
    """How LSF starts a job: bmod names hosts and LSF's limits stay in force; brun starts it past them."""

    kubernetes: KubernetesSettings = KubernetesSettings()
    """Settings of gpuyard serve kubernetes."""
    simulation: SimulationConfig = SimulationConfig()
    """Settings that policies share with simulations: shares, half-life, quotas, weights."""

    @property
    def acts(self) -> bool:
        """Whether anything is written to the cluster."""
        return self.mode in ("canary", "active")

    @property
    def journal(self) -> Path:
        """Where every round is recorded."""
        return self.state_dir / "journal.sqlite"

    @property
    def socket(self) -> Path:
        """Where the agent answers."""
        return self.state_dir / "agent.socket"


def read_settings(path: str | Path, changes: dict[str, Any] | None = None) -> ServeSettings:
    """Settings of a TOML file, with some replaced.

    Raises:
        InputError: naming the file and the key.
    """
    values = read_toml(Path(path)) | (changes or {})
    return make_settings(values, str(path))


def make_settings(values: dict[str, Any], where: str = "") -> ServeSettings:
    """Settings of plain values.

    Raises:
        InputError: naming the key.
    """
    try:
        made = ServeSettings(**values)
    except ValidationError as error:
        known = dict.fromkeys(ServeSettings.model_fields)
        raise refusal(error, where, known=lambda _: known) from None
    except TypeError as error:
        raise InputError(f"{where}: {error}") from None
    check_consistent(made)
    return made


def check_consistent(settings: ServeSettings) -> None:
    """Refuse settings that contradict each other.

    Raises:
        InputError: naming them.
    """
    if settings.mode == "canary" and not (
        settings.canary_partitions or settings.canary_users or settings.canary_share
    ):
        raise InputError(
            f"{setting('mode', 'canary')} needs to know which jobs to act on; give "
            f"{setting('canary_partitions')}, {setting('canary_users')} or {setting('canary_share')}"
        )
    if settings.lowest_priority + 1000 > settings.highest_priority:
        raise InputError(
            f"{setting('highest_priority')} must be at least 1,000 above {setting('lowest_priority')}"
        )
    if settings.listen is not None and settings.token_file is None:
        raise InputError(f"{setting('listen')} needs {setting('token_file')}: who may ask is told by it")
    if settings.watchdog_s < 2 * settings.interval_s:
        raise InputError(
            f"{setting('watchdog_s')} must be at least twice {setting('interval_s')}, or a living agent "
            "would be taken for dead"
        )
