"""Sends notifications about runs on this machine."""
