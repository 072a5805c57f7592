"""One file per algorithm of training, each registered by name where it lives; read those first.

A file is imported only when its algorithm is used: ``search`` needs no torch.
"""
