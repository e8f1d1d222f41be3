"""Messages that come later: what may wait, and what a master does when their time has come."""
