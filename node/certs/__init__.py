"""The certificates of a cluster: made, renewed and described, by the library `cryptography`."""
