"""Derivatives of decompositions, for the modules of libraries that differentiate."""
