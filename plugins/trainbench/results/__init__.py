"""The pods' results become the campaign: one result for each planned run, stored in files."""
