"""Programs that run until they are stopped: nodes, coordinators, local clusters."""
