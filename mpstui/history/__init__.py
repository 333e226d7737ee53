"""What the logs of a daemon tell, from their first line on, with no daemon needed: events, and the state at a time."""
