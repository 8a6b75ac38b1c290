"""Runs: what decides one, where it is kept, who makes it."""
