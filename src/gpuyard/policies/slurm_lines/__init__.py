"""Rules as lines of slurm.conf: what comes nearest to each, what is lost, and the lines read back.

It imports the imports of slurm.conf, so that one table of keys serves both ways.
"""
