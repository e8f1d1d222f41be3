"""The embedded coordinator: etcd's API, as far as we use it, by one process on sqlite."""
