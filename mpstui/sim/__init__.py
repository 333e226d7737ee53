"""The simulated node: a stand-in control executable, a daemon behind it, and real processes as clients."""
