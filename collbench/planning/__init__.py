"""Capacity planning: does a model fit, how long is a step, where does the fabric stop paying.

Nothing here measures, and nothing imports an MPI or a GPU library. What a collective costs is asked of a `Cost`: a
described tier, or whatever a fit of measured results offers.
"""
