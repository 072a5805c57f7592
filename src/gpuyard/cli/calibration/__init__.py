"""The verb that finds the policy which reproduces a log. Nothing imports it."""
