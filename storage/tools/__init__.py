"""Tools for a store on disk that no node has open: dump, verify, rebuild, recover."""
