"""Scheduling policies: an order, a backfill, an optional admission rule and a placement."""
