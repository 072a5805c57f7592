from pathlib import Path
import pytest
from training_runs import begin, fingerprint, finish, records, tiny_config, train, wait_for_step

@pytest.mark.parametrize("algorithm",["d3qn","sac"])
def test_warm(algorithm,tmp_path: Path) -> None:
    config = tiny_config(algorithm, warm_start={"policy": "sjf+easy", "steps": 512})
    straight, broken = tmp_path / "straight", tmp_path / "broken"
    assert train(straight, config) == 0
    for step in (200, 900):
        running = begin(broken, config, resume=(broken / "checkpoint.safetensors").exists())
        wait_for_step(broken, running, step)
        running.interrupt()
        finish(running)
    assert train(broken, config, resume=True) == 0
    assert fingerprint(broken) == fingerprint(straight)
