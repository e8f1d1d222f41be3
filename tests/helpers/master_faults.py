"""What happens to a master: it is killed, it stands still longer than its lease, it hands over."""

import time

from helpers.elected import Elected

ZOMBIE_S = 1.0
"""How long the next master leads before the one that stood still goes on."""


def kill(nodes: Elected) -> None:
    """With SIGKILL; it comes back once another one leads."""
    master = nodes.wait_master()
    master.kill()
    nodes.wait_master(other_than=master)
    master.start(wait=False)


def pause(nodes: Elected) -> None:
    """For longer than its lease: when it goes on, it still believes to be the master."""
    master = nodes.wait_master()
    master.pause()
    nodes.wait_master(other_than=master)
    time.sleep(ZOMBIE_S)
    master.resume()


def switch(nodes: Elected) -> None:
    """By an operator."""
    master = nodes.wait_master()
    nodes.tandemlog("switchover", "--yes")
    nodes.wait_master(other_than=master)


FAULTS = (kill, pause, switch)
