"""Comparisons that are put together on request: results over the same jobs, on other clusters too.

Only pages of the dashboard import it.
"""
