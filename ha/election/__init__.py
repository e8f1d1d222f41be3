"""Who leads, decided over the coordinator's record: see role_loop.py for the decision itself."""
