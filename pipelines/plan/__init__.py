"""Shows what a run would do, without starting anything."""
