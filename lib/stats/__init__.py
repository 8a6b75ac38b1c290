"""This room has metrics, costs, and the paired differences that words rest on.

It is free of torch."""
