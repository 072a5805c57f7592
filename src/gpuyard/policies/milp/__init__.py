"""The ``milp`` placement: the first jobs of the queue placed together by an integer programme."""
