"""Examples that run: `python -m svdserve.examples.NAME --help`, NAME being mimo_capacity, antenna_selection or cdl_channels."""
