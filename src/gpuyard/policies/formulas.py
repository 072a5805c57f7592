"""Formulas of the orders, as section 8 of docs/contract/simulator.md has them; a test compares the two.

In seconds: s = submit, w = the wait so far, r = the estimate, t = submit in the whole trace; n = GPUs.
Jobs with the smallest score come first.
"""

FORMULAS = {
    "fifo": "s",
    "lifo": "-s",
    "sjf": "r",
    "ljf": "-r",
    "smallest": "n",
    "largest": "-n",
    "saf": "r * n",
    "laf": "-(r * n)",
    "wspt": "r * max(r, 10.0) * n",
    "power": "pow(r, A) * n, A a number, 0 < A ≤ 8",
    "wfp3": "q = w / r; -(q * q * q * n)",
    "unicep": "-(w / (log2(max(n, 2.0)) * r))",
    "f1": "log10(r) * n + 870.0 * log10(t)",
    "f2": "sqrt(r) * n + 25600.0 * log10(t)",
    "f3": "r * n + 6860000.0 * log10(t)",
    "f4": "r * sqrt(n) + 530000.0 * log10(t)",
    "priority": "-priority",
    "edf": "the deadline in seconds; +infinity without one",
    "fair-share": "the user's decayed usage now / the user's weight, see below",
    "random": "uniform(seed, 2, index of the instant, original row)",
    "power-aware": "r * e, e = the least energy rate over its allowed pools, see below",
    "qssf": "n * h, h = the prediction of section 19 in seconds, whatever the estimates",
    "group-fair-share": "the group's decayed usage now / the group's weight",
    "drf": "the user's dominant share, see below",
    "multifactor": "-(Slurm's priority), see below",
    "srtf": "remaining r, see section 14 (preemptive)",
    "ssf": "remaining r * n (preemptive)",
    "las": "attained service in seconds, see section 14 (preemptive)",
    "las-2d": "attained service in seconds * n (preemptive)",
    "tiresias": "double(level), see below (preemptive)",
    "gittins": "-(Gittins index of the attained GPU time), see below (preemptive)",
}
"""By name, without the number that belongs to some."""
