"""The one content-addressed store of arrays: what it writes, what it reads back, what is still in the making."""
