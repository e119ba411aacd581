"""HTTP routes of the pages, and their registration with Airflow."""
