"""Pages of the dashboard, one file each: ``TITLE``, ``PATH``, ``routes(site)``. ``app.PAGES`` lists them.

A page answers with ``site.page(...)``, its script is a module of ``static``, and its data lie below ``/api``.
"""
