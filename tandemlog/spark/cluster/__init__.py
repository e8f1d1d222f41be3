"""Options, connections and offsets of the live sources."""
