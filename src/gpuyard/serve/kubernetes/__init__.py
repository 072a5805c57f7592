"""Kubernetes: pods that wait for the agent, released or bound where the policy wants them.

Needs ``httpx`` and ``yaml`` (extra ``kubernetes``). Imports state, decision and process; only the command
line imports it.
"""
