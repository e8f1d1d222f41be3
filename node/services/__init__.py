"""The gRPC services of a node, and the door through which every call goes."""
