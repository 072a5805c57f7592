"""What is shown in a terminal: tables, panels, progress. Nothing below the command line imports it."""
