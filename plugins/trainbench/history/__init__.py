"""The history in SQL: every run, verdict, breach and warning, and the schema that holds them."""
