"""Why is a node not well? What sets it apart from its peers, as ranked causes with a next step."""
