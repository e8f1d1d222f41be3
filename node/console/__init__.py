"""The pages for people, under /console/ on a node's HTTP port."""
