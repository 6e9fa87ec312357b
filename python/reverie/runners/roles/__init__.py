"""The roles of a run, each with one job, and the loop that runs all of them."""
