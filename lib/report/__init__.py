"""This package turns notebooks into pages: it runs them and writes HTML and Markdown.

The Markdown form, called the light page, is read on a code host such as GitHub."""
