"""Each node against its peers of the same night: reference, noise, verdict, confirmation by a re-run."""
