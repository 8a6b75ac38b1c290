"""This module says by which columns EfficientBERT's claims are judged."""

from lib.papers.efficientbert import recipes

COLUMNS = recipes.COLUMNS
