"""Sends notifications about runs."""
