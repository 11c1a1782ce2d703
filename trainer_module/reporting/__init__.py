"""Reports what training processes do: progress, history, logs and metrics."""
