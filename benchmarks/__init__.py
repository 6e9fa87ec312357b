"""In-process replay against its peers: the same work, alternating in one run, ratios of medians."""
