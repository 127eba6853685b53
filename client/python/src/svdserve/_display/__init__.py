"""Results and progress, for a person who reads them."""
