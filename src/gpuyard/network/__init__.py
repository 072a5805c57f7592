"""Networks as data: their settings, shapes and files. Nothing here needs torch."""
