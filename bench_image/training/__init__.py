"""The training loop, and what is measured or decided around it."""
