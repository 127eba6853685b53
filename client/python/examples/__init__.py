"""Examples that run: `python -m svdserve.examples.NAME --help`; mimo_capacity, antenna_selection, damped_modes, ..."""
