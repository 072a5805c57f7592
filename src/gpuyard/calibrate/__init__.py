"""Which policy, weights and number of nodes reproduce what a log recorded, and how closely.

The command line and reports import it. Names are loaded when they are first used (docs/guide/calibrate.md).
"""

from typing import TYPE_CHECKING

from gpuyard.registry import loaded_on_use

if TYPE_CHECKING:
    from gpuyard.calibrate.closeness import Closeness
    from gpuyard.calibrate.config import CalibrationConfig
    from gpuyard.calibrate.engine import calibrate
    from gpuyard.calibrate.result import Calibration

__all__ = ["Calibration", "CalibrationConfig", "Closeness", "calibrate"]

_HOMES = {
    "Calibration": "result",
    "CalibrationConfig": "config",
    "Closeness": "closeness",
    "calibrate": "engine",
}

__getattr__ = loaded_on_use(__name__, _HOMES)
