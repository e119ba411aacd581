"""Banners on Airflow's home page."""
