"""Shows what a run would be, without starting anything."""
