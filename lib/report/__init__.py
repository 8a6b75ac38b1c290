"""This room makes pages of notebooks: it runs them and writes HTML and Markdown.

The Markdown pages are the light ones, for a code host. The room is free of torch."""
