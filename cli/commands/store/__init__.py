"""The files of a store on disk."""
