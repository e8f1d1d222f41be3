"""Looks at the files of a store and changes nothing: for recovery and the tools."""
