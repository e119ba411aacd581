"""Settings of an installation: its environment variables and its channels for alerts."""
