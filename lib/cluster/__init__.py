"""This room has runs: what decides one, where it is kept, and who makes it."""
