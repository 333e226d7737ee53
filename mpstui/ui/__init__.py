"""The screen; the only place that imports textual."""
