"""The alert and the screens for when something is wrong."""
