"""Notices by mail, Slack and webhook, notes on DAG runs, and the summaries in asset events."""
