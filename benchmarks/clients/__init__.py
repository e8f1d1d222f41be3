"""What a client reaches at a node: puts, pulls and scans, their decoding, TLS, its own import."""
