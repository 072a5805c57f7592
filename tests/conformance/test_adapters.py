"""Every adapter passes the same tests: the simulated cluster, and Slurm and LSF played by commands."""

import contextlib
import io
import os
import time
from pathlib import Path
from typing import Any

import polars as pl

from fault.fake_slurm import FakeSlurm, answer
from fault.lsf_double import CommandError, LsfDouble
from gpuyard.cluster.hostlists import expanded_nodes
from gpuyard.cluster.model import parse_cluster
from gpuyard.config import SimulationConfig
from gpuyard.policies.base import as_policy
from gpuyard.policies.grammar import parse_policy
from gpuyard.serve.adapter import Adapter, AdapterError
from gpuyard.serve.kubernetes.adapter import KubernetesAdapter
from gpuyard.serve.kubernetes.pods import GATE
from gpuyard.serve.lsf.adapter import LsfAdapter
from gpuyard.serve.lsf.commands import Commands as LsfCommands
from gpuyard.serve.settings import ServeSettings
from gpuyard.serve.simulated import SimulatedCluster
from gpuyard.serve.slurm.adapter import SlurmAdapter
from gpuyard.serve.slurm.commands import Commands
from gpuyard.serve.state import ClusterState
from gpuyard.testing import AdapterConformance, SchedulerDouble
from gpuyard.workload import make_workload
from support.kubernetes_agents import kubernetes_settings
from support.kubernetes_api import NODES, PODS, FakeApi
from support.kubernetes_cluster import Cluster, client, pod
from support.kubernetes_cluster import node as cluster_node

TIMEOUT_S = 1.5


class ListsAtOnce(Commands):
    """Asks for lists in this process, because a process for each takes most of the time of these tests."""

    def __init__(self, place: Path) -> None:
        super().__init__(TIMEOUT_S, {"PATH": f"{place}:{os.environ.get('PATH', '/usr/bin:/bin')}"})
        self._place = place

    def _run(self, command: tuple[str, ...]) -> bytes:
        writes = command[0] == "scontrol" and "show" not in command
        if writes or (self._place / "fault").read_text() in ("hang", "down"):
            return super()._run(command)
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            answer(self._place, command[0], list(command[1:]))
        return said.getvalue().encode()


class SimulatedDouble(SchedulerDouble):
    """The simulator: nothing is held, nothing fails, and every observation is a decision point."""

    faults = frozenset()
    can = frozenset({"run"})

    def __init__(self, place: Path) -> None:
        super().__init__(place)
        self._gpus: list[int] = []
        self._made: SimulatedCluster | None = None

    def adapter(self) -> Adapter:
        if self._made is None:
            count = len(self._gpus)
            # One more that comes while the others run: a simulation without arrivals leaps to the first end.
            frame = pl.DataFrame(
                {
                    "submit_s": [0.0] * count + [1.0],
                    "duration_s": [100.0] * (count + 1),
                    "gpus": [*self._gpus, 1],
                }
            )
            policy = as_policy(parse_policy("fifo+easy"))
            cluster = parse_cluster("2x4")
            self._made = SimulatedCluster(make_workload(frame), cluster, policy, SimulationConfig())
        return self._made

    def submit(self, gpus: int = 1, name: str = "job", held: str = "agent") -> str:
        self._gpus.append(gpus)
        return str(len(self._gpus) - 1)

    def run(self) -> None:
        """The next observation does it."""

    def is_held(self, job: str) -> bool:
        return False

    def nodes_of(self, job: str) -> frozenset[str]:
        assert self._made is not None
        state = self._made.observe()
        return frozenset(share.node for share in state.by_id[job].shares)

    def account(self) -> Any:
        return list(self._gpus)


class SlurmDouble(SchedulerDouble):
    """Commands that answer as Slurm 22.05 does."""

    can = frozenset({"hold", "order", "vanish", "clock", "unpin"})

    def __init__(self, place: Path) -> None:
        super().__init__(place)
        self._fake = FakeSlurm(place, jobs=0, full=False)

    def adapter(self) -> Adapter:
        return SlurmAdapter(ServeSettings(), ListsAtOnce(self.place))

    def submit(self, gpus: int = 1, name: str = "job", held: str = "agent") -> str:
        return str(self._fake.submit(gpus, name, held))

    def vanish(self, job: str) -> None:
        self._fake.cancel(int(job))

    def clock(self, seconds: float) -> None:
        self._fake.clock(seconds)

    def fault(self, name: str) -> None:
        self._fake.fault(name)

    def is_held(self, job: str) -> bool:
        return int(job) in self._fake.held()

    def nodes_of(self, job: str) -> frozenset[str]:
        found = self._fake.jobs().get(int(job), {})
        return frozenset(expanded_nodes(found.get("required_nodes", "")) or ())

    def order(self) -> list[str]:
        free = [job for job in self._fake.jobs().values() if job["priority"]]
        return [str(job["job_id"]) for job in sorted(free, key=lambda job: -job["priority"])]

    def account(self) -> Any:
        return self._fake.jobs()


class LsfListsAtOnce(LsfCommands):
    """Runs commands in this process, but for hangs and for jobs with names that a shell would act on."""

    def __init__(self, lsf: LsfDouble) -> None:
        super().__init__(TIMEOUT_S, {"PATH": f"{lsf.place}:{os.environ.get('PATH', '/usr/bin:/bin')}"})
        self._lsf, self.nasty = lsf, False

    def _run(self, command: tuple[str, ...]) -> bytes:
        if self.nasty or self._lsf.setting("fault") in ("hang", "down"):
            return super()._run(command)
        try:
            return self._lsf.answer(command[0], list(command[1:])).encode()
        except CommandError as error:
            raise AdapterError(str(error)) from None


class LsfSite(SchedulerDouble):
    """Commands that answer as LSF 10.1 documents it."""

    def __init__(self, place: Path) -> None:
        super().__init__(place)
        self._lsf = LsfDouble(place)
        self._nasty = False

    def adapter(self) -> Adapter:
        commands = LsfListsAtOnce(self._lsf)
        commands.nasty = self._nasty
        return LsfAdapter(ServeSettings(), commands)

    def submit(self, gpus: int = 1, name: str = "job", held: str = "agent") -> str:
        self._nasty |= name != "job"
        state = "PSUSP" if held else "PEND"
        description = "gpuyard:held" if held == "agent" else ""
        return str(self._lsf.submit(gpus=gpus, name=name, state=state, description=description))

    def vanish(self, job: str) -> None:
        self._lsf.forget(int(job))

    def run(self) -> None:
        self._lsf.tick()

    def clock(self, seconds: float) -> None:
        self._lsf.set(ahead_s=seconds)

    def fault(self, name: str) -> None:
        self._lsf.set(fault=name)

    def is_held(self, job: str) -> bool:
        return self._lsf.jobs().get(int(job), {}).get("state") == "PSUSP"

    def nodes_of(self, job: str) -> frozenset[str]:
        found = self._lsf.jobs()[int(job)]
        return frozenset((found["on_hosts"] or found["hosts"]).split())

    def order(self) -> list[str]:
        return [str(number) for number, job in self._lsf.jobs().items() if job["state"] == "PEND"]

    def account(self) -> Any:
        return self._lsf.jobs()


class PatientKubernetes(KubernetesAdapter):
    """Waits until its copy is that of the API server, or too old, because tests look at once."""

    double: "KubernetesDouble"

    def observe(self) -> ClusterState:
        if self.double.broken:
            time.sleep(2.5 if self.double.broken != "hang" else 4.5)
            return super().observe()
        until = time.monotonic() + 20.0
        while time.monotonic() < until:
            with contextlib.suppress(AdapterError):
                super().observe()
                if self._caught_up():
                    break
            time.sleep(0.02)
        return super().observe()

    def _caught_up(self) -> bool:
        latest = {path: version for version, path, _, _ in self.double.api.events}
        return all(
            int(watched._version or 0) >= latest.get(path, 0)
            for path, watched in ((PODS, self.pods), (NODES, self.nodes))
        )


class KubernetesDouble(SchedulerDouble):
    """The small API server, with kube-scheduler and kubelets."""

    can = frozenset({"hold", "vanish", "run"})

    def __init__(self, place: Path) -> None:
        super().__init__(place)
        self.api = FakeApi()
        self.broken = ""
        self._adapters: list[KubernetesAdapter] = []
        self._names = 0
        for name in ("gn1", "gn2"):
            self.api.create(NODES, cluster_node(name, 4))

    def adapter(self) -> Adapter:
        settings = kubernetes_settings(self.place, max_age_s=2.0)
        made = PatientKubernetes(settings, client(self.api, 1.0))
        made.double = self
        self._adapters.append(made)
        return made

    def submit(self, gpus: int = 1, name: str = "job", held: str = "agent") -> str:
        self._names += 1
        gates = {"agent": [GATE], "user": ["mine"], "": []}[held]
        found = pod(
            f"p{self._names}", gpus, labels={"name": name}, schedulingGates=[{"name": g} for g in gates]
        )
        self.api.create(PODS, found)
        return f"train/p{self._names}"

    def _found(self, job: str) -> dict[str, Any]:
        return next(one for one in self.api.all(PODS) if job == f"train/{one['metadata']['name']}")

    def vanish(self, job: str) -> None:
        self.api.delete(PODS, *job.split("/"))

    def run(self) -> None:
        for _ in range(3):
            Cluster(self.api).step()

    def fault(self, name: str) -> None:
        self.broken = name
        known = {"down": "500", "": None}
        self.api.fault = lambda method, path: known.get(name, name)

    def is_held(self, job: str) -> bool:
        return bool(self._found(job)["spec"].get("schedulingGates"))

    def nodes_of(self, job: str) -> frozenset[str]:
        spec = self._found(job)["spec"]
        on = spec.get("nodeName") or (spec.get("nodeSelector") or {}).get("kubernetes.io/hostname")
        return frozenset([on] if on else [])

    def account(self) -> Any:
        return self.api.all(PODS)

    def close(self) -> None:
        self.api.fault = lambda method, path: None
        for adapter in self._adapters:
            adapter.close()
        self.api.close()


class TestKubernetes(AdapterConformance):
    double_type = KubernetesDouble


class TestLsf(AdapterConformance):
    double_type = LsfSite


class TestSimulated(AdapterConformance):
    double_type = SimulatedDouble


class TestSlurm(AdapterConformance):
    double_type = SlurmDouble
