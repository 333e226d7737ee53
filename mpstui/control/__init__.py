"""The control channel: one command under a deadline, its answer judged by the text."""
