"""The program `tandemlog`: its commands are in commands/, what they share is here."""
