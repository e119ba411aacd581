"""A campaign as Markdown, HTML, JSON, CSV, plots and terminal text."""
