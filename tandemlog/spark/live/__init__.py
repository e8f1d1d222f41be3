"""format("tandemlog"), reading: batch and stream."""
