"""The roles of a run as actors of a Ray cluster. Only this package and `reverie.parameters.ray` import Ray."""
