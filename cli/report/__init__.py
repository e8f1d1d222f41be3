"""A job's result as one HTML file with plots, for people who were not there when it ran."""
