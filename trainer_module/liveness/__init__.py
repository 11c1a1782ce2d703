"""Ends training processes well: SIGTERM, lost peers, stuck processes, exit codes."""
