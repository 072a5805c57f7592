"""What environments look like: as text, and as pictures."""

import re
from typing import Any

import gymnasium
import numpy as np
import polars as pl
import pytest

import gpuyard.env
from gpuyard.env.rendering import font as bitmap_font
from gpuyard.env.rendering.layout import lay_out
from gpuyard.env.rendering.picture import HEIGHT_PX, WIDTH, job_colour
from gpuyard.env.rendering.text import COLOURS, LETTERS, MOST_NODES, draw_text, paint
from gpuyard.workload import Workload, make_workload


class FakeSnapshot:
    """Anything that tells nodes, running and waiting jobs as the core does."""

    def __init__(
        self,
        gpus: list[int],
        running: dict[int, list[tuple[int, int]]],
        waiting: list[dict[str, float]] | None = None,
        **nodes: Any,
    ) -> None:
        self.now_s = 100.0
        self._parts = running
        held = np.zeros(len(gpus), dtype=np.int64)
        for parts in running.values():
            for node, count in parts:
                held[node] += count
        empty = np.array(gpus) - held
        self.nodes = {
            "gpus": np.array(gpus, dtype=np.int32),
            "empty_gpus": empty,
            "pool": np.zeros(len(gpus), dtype=np.int32),
            "free_milli": 1000 * empty,
            "free_cpus": np.full(len(gpus), 2**40),
            "free_memory_mib": np.full(len(gpus), 2**40),
        } | {name: np.array(values) for name, values in nodes.items()}
        ids = sorted(running)
        self.running = {"job": np.array(ids, dtype=np.int64), "expected_end_s": np.full(len(ids), 160.0)}
        defaults = {
            "gpus": 1,
            "gpu_milli": 1000,
            "cpus": 0,
            "memory_mib": 0,
            "estimate_s": 60.0,
            "wait_s": 5.0,
        }
        rows = [{**defaults, **row} for row in waiting or []]
        self.queue = {name: np.array([row[name] for row in rows]) for name in ("job", *defaults)}

    def nodes_of(self, job: int) -> list[tuple[int, int]]:
        return self._parts[job]


def plain(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


def text_of(snapshot: Any, window: list[int] | None = None) -> str:
    jobs = snapshot.queue["job"].tolist() if window is None else window
    return draw_text(snapshot, snapshot.now_s, jobs)


def picture_of(snapshot: Any, window: list[int] | None = None) -> Any:
    jobs = snapshot.queue["job"].tolist() if window is None else window
    return paint(snapshot, snapshot.now_s, jobs)


def has_colour(picture: Any, colour: tuple[int, int, int]) -> bool:
    return bool((picture == np.array(colour)).all(axis=2).any())


def four_jobs() -> Workload:
    columns = {"submit_s": [0, 0, 0, 0], "duration_s": [50, 60, 70, 80], "gpus": [4, 2, 8, 1]}
    return make_workload(pl.DataFrame(columns))


# As text


def test_every_gpu_is_a_letter_of_its_job_or_a_dot() -> None:
    text = plain(text_of(FakeSnapshot([4, 4], {0: [(0, 3)], 1: [(0, 1), (1, 2)]})))
    assert "node 0  AAAB\n" in text
    assert "node 1  BB..\n" in text


def test_the_heading_counts_gpus_and_jobs() -> None:
    first = plain(text_of(FakeSnapshot([4, 4], {0: [(0, 3)]}, [{"job": 1}, {"job": 2}]))).split("\n")[0]
    assert first == "1 min 40 s: 3 of 8 GPUs in use (37.5 %), 1 running, 2 waiting"


def test_jobs_that_share_a_gpu_are_marked() -> None:
    snapshot = FakeSnapshot([4], {0: [(0, 2)], 1: [(0, 1)], 2: [(0, 1)]})
    snapshot.nodes["empty_gpus"] = np.array([1])  # two of the jobs are on one GPU
    assert "node 0  AA+.\n" in plain(text_of(snapshot))


def test_hundreds_of_jobs_in_a_row_differ_in_letter_or_colour() -> None:
    looks = {(LETTERS[job % len(LETTERS)], COLOURS[job % len(COLOURS)]) for job in range(500)}
    assert len(looks) == 500


def test_many_nodes_are_grouped_by_their_empty_gpus() -> None:
    text = plain(text_of(FakeSnapshot([8] * (MOST_NODES + 1), {0: [(0, 8), (1, 8)], 1: [(2, 5)]})))
    assert "node 0" not in text
    assert "########  0 empty  2 nodes" in text
    assert "#####...  3 empty  1 node\n" in text
    assert f"........  8 empty  {MOST_NODES - 2} nodes" in text


def test_hosts_show_how_much_is_used_where_that_is_known() -> None:
    nodes: dict[str, Any] = {"free_cpus": [10], "free_memory_mib": [3 * 1024]}
    unknown = plain(text_of(FakeSnapshot([0], {0: [(0, 0)]}, **nodes)))
    known = plain(text_of(FakeSnapshot([0], {0: [(0, 0)]}, **nodes, cpus=[40], memory_mib=[4 * 1024])))
    assert "10 CPUs free" in unknown
    assert "3 GiB free  1 job" in unknown
    assert "###############.....     30/40 CPUs" in known
    assert "#####...............       1/4 GiB  1 job" in known


def test_the_queue_is_shown_in_the_order_of_the_window_and_cut() -> None:
    waiting = [{"job": job, "gpus": job} for job in range(1, 21)]
    lines = plain(text_of(FakeSnapshot([32], {}, waiting), list(range(20, 0, -1)))).splitlines()
    rows = [line.split()[:4] for line in lines if "GPU" in line and "min" in line and "node" not in line]
    assert rows[1] == ["0", "20", "U", "20"]
    assert len(rows[1:]) == 15
    assert lines[-1] == "and 5 more"


@pytest.mark.parametrize(
    ("job", "words"),
    [
        ({"gpu_milli": 250}, "0.25 GPU "),
        ({"gpus": 0, "cpus": 12, "memory_mib": 2048}, "12 CPUs, 2 GiB"),
        ({"estimate_s": float("nan")}, "unknown"),
        ({"wait_s": 7200.0}, "2 h"),
    ],
)
def test_a_row_says_what_a_job_asks_for(job: dict[str, float], words: str) -> None:
    assert words in plain(text_of(FakeSnapshot([4], {}, [{"job": 3, **job}])))


# As a picture


def test_a_job_has_its_colour_on_the_cluster_and_in_the_queue() -> None:
    picture = picture_of(FakeSnapshot([8], {5: [(0, 4)]}, [{"job": 6}]))
    cluster, queue = picture[:, :800], picture[:, 800:]
    assert has_colour(cluster, job_colour(5))
    assert not has_colour(queue, job_colour(5))
    assert has_colour(queue, job_colour(6))
    assert not has_colour(cluster, job_colour(6))


def test_colours_of_jobs_that_follow_each_other_are_far_apart() -> None:
    colours = np.array([job_colour(job) for job in range(300)])
    for distance in range(1, 8):
        assert np.abs(colours[distance:] - colours[:-distance]).sum(axis=1).min() > 40
    assert len({tuple(colour) for colour in colours.tolist()}) > 290


@pytest.mark.parametrize(
    "gpus", [[8], [1] * 256, [8] * 200, [8] * 1000, [8] * 30_000, [0] * 34, [100], [0, 8]]
)
def test_every_cluster_gives_a_picture_of_the_same_size(gpus: list[int]) -> None:
    empty, busy = FakeSnapshot(gpus, {}), FakeSnapshot(gpus, {1: [(0, gpus[0])]}, [{"job": 2}])
    for snapshot in (empty, busy):
        picture = picture_of(snapshot)
        assert picture.shape == (HEIGHT_PX, WIDTH, 3)
        assert picture.dtype == np.uint8
    assert (picture_of(empty) != picture_of(busy)).any()


@pytest.mark.parametrize("gpus", [[8], [1] * 256, [8] * 200, [8] * 1000, [0] * 34, [100], [4, 8, 0]])
def test_nodes_are_within_the_box_and_do_not_overlap(gpus: list[int]) -> None:
    sizes = np.array(gpus, dtype=np.int32)
    pools = [np.flatnonzero(sizes == size) for size in np.unique(sizes)]
    layout = lay_out(sizes, pools, (10, 20, 760, 600), 380)
    assert layout is not None
    canvas = np.zeros((700, 900), dtype=np.int32)
    for node, size in enumerate(gpus):
        for gpu in range(size or 1):
            line, place = divmod(gpu, layout.wrap)
            top, left = layout.top[node] + line * layout.cell, layout.left[node] + place * layout.wide
            canvas[top : top + layout.cell, left : left + layout.wide] += 1
    assert canvas.max() == 1
    assert canvas[20 : layout.bottom, 10:770].sum() == canvas.sum()
    assert layout.bottom <= 620


def test_letters_of_the_font_differ_and_unknown_ones_are_question_marks() -> None:
    letters = [letter for letter in bitmap_font._ROWS if letter != " "]
    looks = {bitmap_font.text_mask(letter).tobytes() for letter in letters}
    assert len(looks) == len(letters) > 60
    assert (bitmap_font.text_mask("é") == bitmap_font.text_mask("?")).all()
    assert bitmap_font.text_mask("ab", 3).shape == (24, bitmap_font.text_width("ab", 3))


# Of environments


def test_an_environment_draws_what_its_actions_did() -> None:
    env = gymnasium.make("gpuyard/SelectJob-v0", workload=four_jobs(), cluster="2x8", render_mode="ansi")
    env.reset(seed=0)
    before = plain(env.render())  # type: ignore[arg-type]
    order = [int(line.split()[1]) for line in before.splitlines() if re.match(r" +\d+ +\d+ ", line)]
    assert sorted(order) == [0, 1, 2, 3]
    env.step(order.index(2))  # all of one node
    after = plain(env.render())  # type: ignore[arg-type]
    assert "node 0  ........" in before
    assert "CCCCCCCC" in after
    assert "1 running, 3 waiting" in after


@pytest.mark.parametrize("kind", sorted(gpuyard.env.KINDS))
def test_every_environment_can_be_drawn_from_beginning_to_end(kind: str) -> None:
    env: Any = gymnasium.make(kind, render_mode="rgb_array", jobs_per_episode=20, disable_env_checker=True)
    env.reset(seed=1)
    assert env.render().shape == (HEIGHT_PX, WIDTH, 3)
    inner, over = env.unwrapped, False
    while not over:
        action = inner.expert_action("fifo+greedy")
        _, _, terminated, truncated, _ = env.step(action)
        over = terminated or truncated
    assert env.render().shape == (HEIGHT_PX, WIDTH, 3)
