#!/bin/sh
# Certificates and tokens of the composed cluster, made once; `renew` makes the certificates anew.
#   /authority   the authority with its key: for this step alone
#   /secrets     what nodes, coordinators and clients read
#   /monitoring  what Prometheus reads, under whatever user it runs
# Nodes notice renewed files by themselves; etcd reads its own for each new connection.
set -eu
umask 077
cluster=$TANDEMLOG_CLUSTER_ID
local=localhost+127.0.0.1

if [ -f /secrets/ready ] && [ "${1:-}" != renew ]; then
    exit 0
fi
tandemlog certs cluster /authority --cluster "$cluster" \
    --nodes "n0=n0+$local,n1=n1+$local,n2=n2+$local" \
    --coordinators "etcd0=etcd0+$local,etcd1=etcd1+$local,etcd2=etcd2+$local,coordinator=coordinator+$local" \
    --clients "operator"
for name in ca n0 n1 n2 etcd0 etcd1 etcd2 coordinator operator; do
    # the key first, each renamed into place: who reads between the two looks again
    for kind in key crt; do
        [ "$name.$kind" = ca.key ] && continue
        cp "/authority/$name.$kind" "/secrets/.$name.$kind"
        mv "/secrets/.$name.$kind" "/secrets/$name.$kind"
    done
done
cp -f /secrets/ca.crt /monitoring/ca.pem
if [ ! -f /secrets/ready ]; then
    rm -f /secrets/access.toml /secrets/*.token /secrets/*.yml # of a step that was killed
    token() {
        name=$1
        shift
        tandemlog token new "$name" --access /secrets/access.toml --out "/secrets/$name.token" "$@" >/dev/null
    }
    token operator --admin
    # what a Java program signs by, with RocketMQ's client
    tandemlog token new-key java --access /secrets/access.toml --out /secrets/java.yml \
        --write Demo --read Demo --consume demo-readers
    token monitoring # an identity without rights may read metrics
    for node in n0 n1 n2; do
        token "$node" --node "$node"
    done
    cp -f /secrets/monitoring.token /monitoring/monitoring.token
    touch /secrets/ready
fi
chmod 755 /monitoring && chmod 444 /monitoring/*
