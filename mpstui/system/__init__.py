"""The machine below it all: its processes, as /proc has them, and files that their owner alone can have written."""
