"""What if: replays that people ask for in the browser, in processes of their own.

Only pages of the dashboard import it. Logs are read below the roots alone, and results are written there.
"""
