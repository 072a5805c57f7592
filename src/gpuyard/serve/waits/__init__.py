"""Why jobs wait and when they will start: simulations of what comes next, from the live state.

``process`` imports it.
"""
