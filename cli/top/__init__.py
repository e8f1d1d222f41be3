"""`tandemlog top`: what is seen, how it is shown, which keys do what."""
