"""State that the log carries: folds over its records, their snapshots, and what each fold is."""
