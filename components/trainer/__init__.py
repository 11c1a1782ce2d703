"""The Trainer component."""
