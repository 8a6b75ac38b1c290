"""This room makes pages of notebooks: it executes them, and writes HTML and light pages.

It is free of torch."""
