"""What a client tells about itself: counters, latencies, and events of its cluster."""
