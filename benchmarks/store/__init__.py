"""What it costs to store messages: formats, appends, flushes, filters and the scrub."""
