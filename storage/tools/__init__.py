"""What can be done with a store on disk that no node has open: dump, verify, rebuild, recover."""
