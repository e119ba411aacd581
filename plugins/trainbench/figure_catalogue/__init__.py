"""The figure catalogue: each figure once, and what is made from it."""
