"""What executors run: writing queues, index files and Parquet folders."""
