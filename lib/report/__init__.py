"""This folder makes pages of notebooks: it checks parameters, executes notebooks and
writes HTML.

It is free of torch.
"""
