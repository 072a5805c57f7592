"""The simulator against a real Slurm: the same jobs on both, and how far their schedules lie apart.

``slurm_box`` starts a real Slurm for anybody who needs one; live tests import it. Nothing of gpuyard imports
this folder.
"""
