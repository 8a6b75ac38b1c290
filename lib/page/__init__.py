"""From notebooks to pages: parameters checked, notebooks executed by papermill, HTML and an index.
Free of torch.
"""
