"""Triton kernels of the ops. Nothing here is imported before it is asked for: Triton is optional.

`configurations` says what there is a kernel for, `passes` and `decode` run them.
"""
