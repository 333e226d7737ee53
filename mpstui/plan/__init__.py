"""Dividing a GPU among clients: the planner, what comes of it on a daemon, profiles, and texts for other programs."""
