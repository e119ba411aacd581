"""Shared values and their text: verdicts, findings, baselines, tables, numbers, Markdown and CSV cells."""
