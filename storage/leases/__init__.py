"""Work queues: what a group has done of a queue, who has which message, what comes again."""
