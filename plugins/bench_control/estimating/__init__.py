"""A training job that nobody has started: what it will take and cost, from measured rates or by formula."""
