"""Pusher: publishes a blessed model in the folder that a server watches, whole or not at all."""
