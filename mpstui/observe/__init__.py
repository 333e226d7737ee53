"""Observation: discovery, NVML, /proc, log tails, and the reducer that folds them into a snapshot."""
