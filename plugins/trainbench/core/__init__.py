"""The words everything else is written in: states and findings, numbers, tables and their order as text."""
