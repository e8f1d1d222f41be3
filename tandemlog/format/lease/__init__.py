"""What leases write and what clients are given of them: handles, policies, progress records."""
