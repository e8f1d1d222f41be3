"""What each page of the console asks for: one module a page."""
