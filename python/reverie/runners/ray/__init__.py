"""The roles of a run as actors of a Ray cluster. No other package imports Ray."""
