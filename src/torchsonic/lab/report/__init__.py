"""Pages about runs, models and data: HTML, Markdown, JSON and pictures."""
