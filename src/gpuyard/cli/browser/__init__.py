"""Commands that open pages in a browser and keep serving them."""
