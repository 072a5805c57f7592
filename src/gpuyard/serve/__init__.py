"""Live schedulers: the same policy object on a real cluster, with guards, a journal and a watchdog.

An adapter observes a cluster and applies actions; the daemon decides in between. Reaches neither gymnasium,
torch nor ``learn``. ``cli`` and ``terminal`` import it.
"""
