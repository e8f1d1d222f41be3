"""What a master decides by its folds, and appends: messages that come when they are due, leases."""
