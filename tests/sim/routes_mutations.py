"""Rules of routes and suggestions, each switched off: the simulation must notice every one."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tandemlog_server.node.remoting.cluster import cluster_nodes
from tandemlog_server.node.remoting.reads.cluster_readers import ClusterReaders
from tandemlog_server.rocketmq.clients.routes import BrokerNames, Placement, RouteNode, placement


@dataclass(frozen=True, slots=True)
class Mutation:
    """What is replaced, by what."""

    target: object
    name: str
    instead: Any


def _broker_0(self: ClusterReaders) -> int:
    return 0


def _without_those_that_are_down(
    names: BrokerNames, nodes: Sequence[RouteNode], answering: str
) -> Placement:
    place = placement(names, nodes, answering)
    up = {each.number for each in nodes if each.up and each.address}
    return replace(place, numbers={each: place.numbers[each] for each in up})


def _without_the_masters_number(
    names: BrokerNames, nodes: Sequence[RouteNode], answering: str
) -> Placement:
    place = placement(names, nodes, answering)
    slaves = {each.number for each in nodes if each.address != place.addresses[0]}
    return replace(place, numbers={each: place.numbers[each] for each in slaves})


def _in_anothers_place(names: BrokerNames, nodes: Sequence[RouteNode], answering: str) -> Placement:
    known = [each if each.up else replace(each, address="") for each in nodes]
    return placement(names, known, answering)


MUTATIONS: Mapping[str, Mutation] = {
    "a master that has met no slave names broker 0": Mutation(ClusterReaders, "own", _broker_0),
    "the number of a node that is down is left out": Mutation(
        cluster_nodes, "placement", _without_those_that_are_down
    ),
    "the master's own number is left out": Mutation(
        cluster_nodes, "placement", _without_the_masters_number
    ),
    "a number is another node's while there is no master": Mutation(
        cluster_nodes, "placement", _in_anothers_place
    ),
    "a slave is in routes once it is met": Mutation(cluster_nodes, "AWAY_S", 0.0),
}
