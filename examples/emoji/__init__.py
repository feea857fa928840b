"""Emoji as a plug-in: a reader, an import command and a recipe that are no part of Fulcrum and use only its public API."""
