"""Gets and queries: selecting units, copying records, checking one against the other."""
