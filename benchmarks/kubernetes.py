"""How long the extender of kube-scheduler takes for a pod, and /v1/decide for a state; processor time.

The cluster has 1,000 nodes of 8 GPUs and two running pods on each. Between two pods one of the others ends,
and what was chosen runs, as on a live cluster. A pod is a filter and a prioritize.
"""

import gc
import json
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gpuyard.registry import register
from harness import BenchResult, measure_apart

NODES, PODS = 1_000, 200
MOST_MS, LEAST_PER_S = 20.0, 80.0
DECIDE_MS = 10.0


@register("benchmark", "serve-http")
def answers() -> Iterator[BenchResult]:
    """Milliseconds for a pod and for a state, as shares of their limits."""
    for kind in ("names", "nodes"):
        found = measure_apart(__file__, kind)
        name = f"extender, {NODES:,} nodes, {kind}"
        yield _limited(f"{name}, slower of filter and prioritize, p99", found["p99_ms"], "ms", MOST_MS)
        rate = found["pods_per_s"]
        yield BenchResult(f"{name}, pods", rate, "/s", f"the least, {LEAST_PER_S:g}", LEAST_PER_S)
    found = measure_apart(__file__, "decide")
    name = "/v1/decide, 100 waiting jobs, 64 nodes, p99"
    yield _limited(name, found["p99_ms"], "ms", DECIDE_MS)


def _limited(name: str, value: float, unit: str, limit: float) -> BenchResult:
    return BenchResult(name, value, unit, f"the limit of {limit:g} {unit}", limit, 1.0, lower_is_better=True)


def measure(kind: str) -> dict[str, float]:
    return decide() if kind == "decide" else extend(kind)


def pod(number: int, gpus: int = 1, node: str = "") -> dict[str, Any]:
    resources = {"limits": {"cpu": "4", "memory": "16Gi", "nvidia.com/gpu": str(gpus)}}
    meta = {"name": f"p{number}", "namespace": "train", "uid": f"u{number}", "resourceVersion": "1"}
    spec = {"containers": [{"name": "c", "resources": resources}], **({"nodeName": node} if node else {})}
    return {"metadata": {**meta, "creationTimestamp": "2026-01-01T00:00:00Z"}, "spec": spec,
            "status": {"phase": "Running" if node else "Pending"}}  # fmt: skip


def node(number: int) -> dict[str, Any]:
    """As long as real ones are, with labels, images and addresses."""
    able = {"cpu": "64", "memory": "512Gi", "pods": "110", "nvidia.com/gpu": "8"}
    labels = {
        "kubernetes.io/hostname": f"gn{number}",
        **{f"example.com/label-{one}": "x" * 20 for one in range(20)},
    }
    images = [{"names": [f"registry.example.com/image-{one}:v1"], "sizeBytes": 10**9} for one in range(20)]
    ready = [{"type": "Ready", "status": "True"}]
    status = {"allocatable": able, "capacity": able, "conditions": ready, "images": images}
    return {
        "metadata": {"name": f"gn{number}", "labels": labels, "resourceVersion": "1"},
        "spec": {},
        "status": status,
    }


def extend(kind: str) -> dict[str, float]:
    from gpuyard.policies.grammar import parse_policy
    from gpuyard.serve.kubernetes.extender import Extender
    from gpuyard.serve.kubernetes.places import read_node
    from gpuyard.serve.kubernetes.pods import read_pod
    from gpuyard.serve.kubernetes.scene import SceneKeeper
    from gpuyard.serve.process.log import Log
    from gpuyard.serve.process.routes import Request
    from gpuyard.serve.settings import ServeSettings

    full = [node(number) for number in range(NODES)]
    nodes = [read_node(one) for one in full]
    pods = {number: read_pod(pod(number, 2, f"gn{number % NODES}")) for number in range(2 * NODES)}
    keeper = SceneKeeper("extender")
    settings = ServeSettings(mode="active", control="start")
    with tempfile.TemporaryFile("w+") as silent:

        def scene() -> Any:
            return keeper.scene(list(pods.values()), nodes, "bench", 1.8e9)

        policy = parse_policy("fifo+easy")
        extender = Extender(scene, policy, settings, None, Log(silent))  # type: ignore[arg-type]
        routes, times, spent = extender.routes(), [], 0.0
        for number in range(10_000, 10_000 + PODS + 20):
            asked: dict[str, Any] = {"Pod": pod(number, 1 + number % 4), "NodeNames": None, "Nodes": None}
            if kind == "names":
                asked["NodeNames"] = [one.name for one in nodes]
            else:
                asked["Nodes"] = {"items": full}
            text = json.dumps(asked).encode()
            both = []
            for path in ("/filter", "/prioritize"):
                began = time.thread_time()
                answer: Any = routes["POST", path](Request("POST", path, "", text))
                json.dumps(answer).encode()
                both.append(time.thread_time() - began)
            best = max(answer, key=lambda one: one["Score"])["Host"]
            pods[number] = read_pod(pod(number, 1 + number % 4, best))
            del pods[number - 10_000]
            if number >= 10_020:  # the first ones meet nothing that is known yet
                times.append(max(both))
                spent += sum(both)
    return {"p99_ms": 1e3 * sorted(times)[int(0.99 * len(times))], "pods_per_s": PODS / spent}


def decide() -> dict[str, float]:
    from gpuyard.policies.grammar import parse_policy
    from gpuyard.serve.journal import Journal
    from gpuyard.serve.process.agent import Agent
    from gpuyard.serve.process.log import Log
    from gpuyard.serve.remote.decisions import Decisions
    from gpuyard.serve.remote.documents import read_state
    from gpuyard.serve.remote.posted import PostedCluster
    from gpuyard.serve.settings import ServeSettings
    from gpuyard.serve.signs import Signs
    from serve import Scripted

    site, times = Scripted(64, 100), []
    with tempfile.TemporaryDirectory() as place, tempfile.TemporaryFile("w+") as silent:
        settings = ServeSettings(state_dir=Path(place), mode="active", control="start", deadline_ms=60_000.0)
        cluster, policy = PostedCluster(), parse_policy("wspt+easy")
        with Journal.open(settings.journal) as journal:
            agent = Agent(settings, cluster, policy, policy, journal, Signs(settings.state_dir), Log(silent))
            decisions = Decisions(agent, cluster)
            # Made beforehand, as by another process: texts of rows are kept by the one that made them last.
            texts = [site.observe().json_text.encode() for _ in range(520)]
            gc.disable()  # as the service does
            for turn, text in enumerate(texts):
                gc.collect(0)
                began = time.process_time()
                json.dumps(decisions.decide(read_state(text))).encode()
                if turn >= 20:
                    times.append(time.process_time() - began)
            agent.chooser.close()
    times.sort()
    return {"p99_ms": 1e3 * times[int(0.99 * len(times))], "p50_ms": 1e3 * times[len(times) // 2]}


if __name__ == "__main__":
    print(json.dumps(measure(sys.argv[1])))
