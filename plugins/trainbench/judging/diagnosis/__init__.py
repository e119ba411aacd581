"""The likely causes of a node's deviation, ranked, each with a next step."""
