"""This package has metrics, costs, and paired differences with their intervals, from
which claims are judged.

It does not import torch."""
