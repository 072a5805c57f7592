"""Replays for the browser: pictures, moments, series and queues of schedules, no more than a screen can show.

Only pages of the dashboard import it.
"""
