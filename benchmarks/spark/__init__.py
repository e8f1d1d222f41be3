"""How fast Spark reads and writes, over the files of a log and over a live cluster."""
