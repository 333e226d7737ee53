"""The static SM partitions of a daemon: its devices in chunks, who is in which partition."""
