"""A campaign -> what people and programs read: Markdown, one HTML page, JSON, CSV, plots, a terminal."""
