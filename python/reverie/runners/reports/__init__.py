"""What a run reports: events, evaluations, counts, scores and logs."""
