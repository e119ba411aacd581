"""A spec as a model on the device."""
