"""What the commands say of a cluster and change in it: nodes, elections, members."""
