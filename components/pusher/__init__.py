"""Pusher: publishes a blessed model in the folder that a model server watches.

`component` declares it, `executor` checks the blessing and archives the model, and
`publishing` makes a version that servers see whole or not at all, and `versions` tells
which one they load.
"""
