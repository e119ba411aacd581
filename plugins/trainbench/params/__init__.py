"""The parameters of a campaign: defaults, limits and trigger forms."""
