"""This module says by which columns the claims of the report are judged."""

from lib.papers.nas_pruning import recipes

COLUMNS = recipes.COLUMNS
