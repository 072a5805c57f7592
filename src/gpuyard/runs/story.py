"""What the records of a training run say so far, whichever way it is shown."""

from gpuyard.runs.curves import Curve, add_update
from gpuyard.runs.directory import Validation, best_score
from gpuyard.runs.progress import Record, printable

RATES_AVERAGED = 5


class RunStory:
    """A run's state, taken in record by record.

    Attributes:
        stage: The last record of a stage before the first update, while there is none.
        idle_s: Time since the last record, which the caller keeps up to date.
    """

    def __init__(self, total_steps: int | None, limit_s: float | None) -> None:
        self.total_steps, self.limit_s = total_steps, limit_s
        self.algorithm = self.name = self.metric = ""
        self.unit = "sample"
        self.stage: Record | None = None
        self.higher_is_better = True
        self.step = 0
        self.update: int | None = None
        self.elapsed_s = self.idle_s = 0.0
        self.rates: list[float] = []
        self.curves: dict[str, Curve] = {}
        self.validations: list[Validation] = []
        self.scores = Curve()
        self.stop_reason = ""

    def add(self, record: Record) -> None:
        """Take in a record."""
        event, self.idle_s = record["event"], 0.0
        self.step = max(self.step, record.get("step", 0))
        self.elapsed_s = max(self.elapsed_s, record.get("elapsed_s") or 0.0)
        if event == "start":
            self.algorithm, self.name = printable(record.get("algorithm")), printable(record.get("name"))
            self.metric = printable(record.get("metric"))
            self.unit = printable(record.get("unit")) or self.unit
            self.higher_is_better = record.get("higher_is_better") is not False
            self.total_steps = self.total_steps or record.get("total_steps") or None
        elif event == "stage":
            self.stage = record
        elif event == "update":
            self.stage = None
            self.update = record.get("update")
            add_update(self.curves, record)
            if record.get("samples_per_s"):
                self.rates = [*self.rates, float(record["samples_per_s"])][-RATES_AVERAGED:]
        elif event == "validation":
            self.validations.append(Validation.of(record))
            self.scores.append(record["step"], record.get("elapsed_s") or 0.0, record.get("score"))
        elif event in ("stop", "resume"):
            self.stop_reason = str(record.get("reason") or "")

    @property
    def rate(self) -> float | None:
        """Samples a second of late."""
        return sum(self.rates) / len(self.rates) if self.rates else None

    @property
    def share_done(self) -> float | None:
        """How far it is, by samples or by time, whichever ends it first; None if it has no end."""
        if self.stage is not None and self.stage.get("total"):
            return min(float(self.stage.get("done") or 0) / float(self.stage["total"]), 1.0)
        shares = [self.step / self.total_steps] if self.total_steps else []
        shares += [self.elapsed_s / self.limit_s] if self.limit_s else []
        return min(max(shares), 1.0) if shares else None

    @property
    def seconds_left(self) -> float | None:
        """Until it ends by samples or by time; None as long as nobody can know."""
        left = [self.limit_s - self.elapsed_s] if self.limit_s else []
        if self.total_steps and self.rate:
            left.append((self.total_steps - self.step) / self.rate)
        return max(min(left) - self.idle_s, 0.0) if left else None

    def best_heuristic(self) -> tuple[str, float] | None:
        """The best heuristic of the last validation, with its score."""
        if not self.validations:
            return None
        return best_score(self.validations[-1].scores, self.higher_is_better)
