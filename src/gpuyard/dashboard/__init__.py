"""The dashboard: training runs, results and live agents in a browser, served from their files.

Files stay the only store, so that a page outlives what it shows. Only ``cli`` may import it; its web server
comes with the extra ``dashboard``.
"""
