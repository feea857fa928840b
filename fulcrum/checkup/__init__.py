"""Checkups: is what lies on the disk as it was written, and what is to be done about what is not?"""
