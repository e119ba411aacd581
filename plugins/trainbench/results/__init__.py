"""What the pods handed back -> the campaign: one result for each planned run, stored with all that it was made of."""
