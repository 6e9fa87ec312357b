"""Reports of a run: events, evaluations, counts, scores and logs."""
