"""Who is told what, once: breaches and recoveries on channels, notes on runs, summaries on assets."""
