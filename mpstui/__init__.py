"""mpstui: watch and run NVIDIA MPS on a GPU node from one terminal screen."""

__version__ = "0.1.0"
