"""What a user may ask for: the parameters, their defaults and limits, and which question they belong to."""
