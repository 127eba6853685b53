"""Examples that run: `python -m svdserve.examples.mimo_capacity --help`, `python -m svdserve.examples.cdl_channels --help`."""
