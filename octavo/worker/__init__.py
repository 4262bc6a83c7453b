"""The device plane's process: builds the model, keeps rows, assembles the batch, steps.

May import: loading, sampling and below.
"""
