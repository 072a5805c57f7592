"""``python -m experiments.fidelity``: streams on a real Slurm, replays of their logs, and the page."""

import argparse
import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

from experiments.fidelity.comparison import AGAIN, compare, compare_again, read_log
from experiments.fidelity.forecast import AHEAD_S, forecast
from experiments.fidelity.page import Findings, page, tables
from experiments.fidelity.recording import LOG, VERSION, record
from experiments.fidelity.slurm_box import BoxError, why_not
from experiments.fidelity.stream import MIXES, draw_stream
from gpuyard import SimulationConfig
from gpuyard.errors import InputError
from gpuyard.files import atomic_write, read_toml

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
RESULTS, PAGE = HERE / "results.json", ROOT / "docs" / "results" / "fidelity.md"
LOGS = ROOT / "out" / "fidelity"
LOADS = (0.8, 1.0, 1.2)


def main() -> None:
    """Does all of it, or only one half."""
    given = _arguments()
    try:
        if not given.replay_only:
            _record(given.logs, given.loads, given.jobs, given.seed, given.mix)
        if not given.record_only:
            _replay(given)
    except (BoxError, InputError) as error:
        sys.exit(f"fidelity: {error}")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m experiments.fidelity", description=__doc__)
    parser.add_argument("--logs", type=Path, default=LOGS, help="where logs lie, by load")
    parser.add_argument("--loads", type=float, nargs="+", default=list(LOADS))
    parser.add_argument("--jobs", type=int, default=600, help="of each stream")
    parser.add_argument("--seed", type=int, default=21)
    parser.add_argument("--mix", choices=list(MIXES), default="large", help="of gang sizes")
    parser.add_argument("--cluster", default=str(HERE / "cluster.toml"), help="as gpuyard simulate takes it")
    parser.add_argument("--policy", default="multifactor+slurm/first-fit")
    parser.add_argument("--settings", type=Path, default=HERE / "settings.toml", help="of the simulation")
    parser.add_argument("--exact-times", action="store_true", help="times of slurmctld's log, not sacct's")
    half = parser.add_mutually_exclusive_group()
    half.add_argument("--record-only", action="store_true", help="leave logs behind, compare nothing")
    half.add_argument("--replay-only", action="store_true", help="compare logs that are there")
    return parser.parse_args()


def _record(logs: Path, loads: list[float], jobs: int, seed: int, mix: str) -> None:
    """Each stream twice, at the same time on two clusters: the second shows how far Slurm is from itself."""
    if reason := why_not(accounting=True):
        raise BoxError(reason)
    # Processes, not threads: a box lives as long as the thread that started it.
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        for load in loads:
            stream = draw_stream(load, jobs, seed, mix)
            print(f"load {load:g}: {jobs} jobs, {stream[-1].submit_s + 90:.0f} s or more", flush=True)
            list(pool.map(record, [stream, stream], [_log(logs, load), _log(logs, load) / AGAIN]))


def _log(logs: Path, load: float) -> Path:
    return logs / f"{load:.1f}"


def _replay(given: argparse.Namespace) -> None:
    logs, loads, exact = given.logs, given.loads, given.exact_times
    config = SimulationConfig(**read_toml(given.settings))
    against = (given.cluster, given.policy, config)
    found = Findings(slurm=(_log(logs, loads[0]) / VERSION).read_text().strip(), exact_times=exact)
    for load in loads:
        jobs = read_log(_log(logs, load) / LOG, exact)
        found.whole.append(compare(jobs, *against, load))
        found.again.append(compare_again(jobs, read_log(_log(logs, load) / AGAIN / LOG, exact), load))
        found.ahead += [forecast(jobs, *against, load, ahead_s) for ahead_s in AHEAD_S]
    with atomic_write(RESULTS) as temporary:
        temporary.write_text(found.model_dump_json(indent=1) + "\n", encoding="utf-8")
    with atomic_write(PAGE) as temporary:
        temporary.write_text(page(found), encoding="utf-8")
    print("\n".join(tables(found)))
    print(f"written: {RESULTS.relative_to(ROOT)}, {PAGE.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
