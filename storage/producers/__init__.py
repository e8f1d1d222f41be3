"""What each producer has stored, so that a retry is not stored twice."""
