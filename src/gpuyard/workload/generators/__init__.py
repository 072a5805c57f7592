"""Seeded generators of workloads (docs/generators.md).

``gpuyard.workload.synthetic`` puts arrivals, durations, users and estimates together; ``bursty``, ``lublin``,
``host_farm`` and ``like`` are models of their own; ``presets`` names ready-made settings of all of them.
"""
