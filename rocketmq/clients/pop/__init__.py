"""POP: what is popped and acknowledged, receipts, counts of ordered pops, queues dealt out."""
