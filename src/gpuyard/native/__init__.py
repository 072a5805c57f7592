"""The one way into and out of the native core: its inputs, its schedules."""
