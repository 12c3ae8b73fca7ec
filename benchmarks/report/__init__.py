"""Reports of results: a self-contained HTML page with plots, and a Markdown summary."""
