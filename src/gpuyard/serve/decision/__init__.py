"""How a round is decided: the snapshot of a live state, who decides on it, and what a guard lets pass.

Pure: nothing here reads or writes a cluster. ``process``, ``waits`` and ``journal`` import it.
"""
