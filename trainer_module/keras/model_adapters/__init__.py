"""Adapts what `build_model` returned to the one interface that the loop uses."""
