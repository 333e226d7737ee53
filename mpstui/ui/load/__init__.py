"""The Launch-load panel: test kernels as clients, their shares moved by keys, and what the device says meanwhile."""
