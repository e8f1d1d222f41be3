"""What goes over the wire between master and slave: frames, chunks, handshake, tables."""
