"""Makes the strategy that the job names."""
