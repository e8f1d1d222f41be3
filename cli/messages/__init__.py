"""What put, pull and bench are made of: where reading begins and ends, lines, their fields."""
