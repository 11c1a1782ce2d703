"""Asks an exported model as a server does, before it leaves the Trainer."""
