"""Adapts what `build_model` returned to the one interface that the loop uses.

Only these modules distinguish a compiled Keras 2 model, a compiled Keras 3 model and a
task that defines its own steps.
"""
