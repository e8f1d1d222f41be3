"""The layouts of the other files: queue units, index, checkpoint, epochs, names."""
