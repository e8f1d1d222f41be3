"""What one pull or query brought: batches of records, and the messages in them."""
