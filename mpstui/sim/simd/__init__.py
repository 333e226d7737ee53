"""The simulated control daemon. Standard library only: it also runs by itself, outside of mpstui's package."""
