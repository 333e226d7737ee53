"""Test kernels as MPS clients: what to run, the processes that run it, their supervisor, and the experiments."""
