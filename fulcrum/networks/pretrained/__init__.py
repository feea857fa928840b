"""Pretrained networks from a folder or a model hub."""
