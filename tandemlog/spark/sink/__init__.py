"""format("tandemlog"), writing: each row stored once."""
