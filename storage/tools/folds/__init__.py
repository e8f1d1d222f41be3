"""For verify: how the snapshot of each fold is compared with the same fold made from the log."""
