"""How long the plugin keeps LSF's scheduler waiting: PYTHONPATH=tests:. python tests/fault/measure_plugin.py.

Prints the harness's figures three times: 20,000 questions about a job with 64 candidates, while an agent with
100 waiting jobs makes its rounds. On a busy machine run it with chrt -r 5.
"""

import json
import os
import subprocess
import tempfile
import threading
import time
from pathlib import Path

from fault.lsf_double import LsfDouble
from gpuyard.serve.lsf.adapter import LsfAdapter
from gpuyard.serve.lsf.commands import Commands
from gpuyard.serve.process.log import Log
from gpuyard.serve.process.service import Service
from gpuyard.serve.settings import ServeSettings

ROOT = Path(__file__).parents[2]
CALLS, HOSTS, JOBS, TIMES = 20_000, 64, 100, 3


def build(place: Path) -> None:
    """The plugin and the harness."""
    subprocess.run(["make", "lsf-plugin", f"PLUGIN={place}/schmod_gpuyard.so"], cwd=ROOT, check=True)
    sources = ROOT / "integrations" / "lsf"
    words = ["cc", "-O2", f"-I{sources}/stub", f"{sources}/harness/harness.c", "-rdynamic", "-ldl"]
    subprocess.run([*words, "-o", f"{place}/harness"], check=True)


def main() -> None:
    """Measure."""
    place = Path(tempfile.mkdtemp(prefix="lsf-"))
    build(place)
    lsf = LsfDouble(place / "bin", hosts=HOSTS, gpus=8, slots=64)
    for number in range(JOBS):
        lsf.submit(gpus=8, description=f"gpuyard-key:k{number}")
    settings = ServeSettings(mode="active", state_dir=place / "state", deadline_ms=20_000)
    commands = Commands(20.0, {"PATH": f"{lsf.place}:{os.environ['PATH']}"})
    log = (place / "log").open("w", encoding="utf-8")
    service = Service(settings, lambda chosen: LsfAdapter(chosen, commands), Log(log))
    thread = threading.Thread(target=service.run)
    thread.start()
    while not (settings.state_dir / "heartbeat").exists():
        time.sleep(0.1)
    for _ in range(TIMES):
        done = subprocess.run(
            [place / "harness", place / "schmod_gpuyard.so", str(CALLS), str(HOSTS), "GPUYARD[k0]"],
            env={"GPUYARD_SOCKET": str(settings.state_dir / "lsf.socket")},
            capture_output=True,
            check=True,
        )
        print(json.loads(done.stdout))
    service.stop()
    thread.join()
    log.close()


if __name__ == "__main__":
    main()
