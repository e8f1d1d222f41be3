"""Arrays of bytes of unequal length: gathering, grouping, hashing by columns."""
